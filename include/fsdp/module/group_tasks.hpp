// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tasks of a schedule that move weights and gradients. What computes is the Executor's.
///
/// A group is gathering from its gather until a unit uses it, and reducing from its reduction until its slot is closed;
/// long loops in modules let those collectives progress.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp {

/// Runs a ShardedModule's gathers, releases and reductions, and gives its units views of weights and gradients.
template <class Module>
class GroupTasks {
 public:
  using Compute = typename Module::Compute;
  using Accumulate = typename Module::Accumulate;
  using Event = typename Module::Device::Event;

  /// `module` must outlive it.
  explicit GroupTasks(Module& module) : module_(module) {}

  /// Starts a training step: the next reduction of each gradient overwrites the gradients at rest.
  void begin_step() {
    for (auto& group : module_.groups()) group.begin_step();
  }
  /// Collectives of the pass start after `start`.
  void begin_pass(const Event& start) {
    start_ = start;
    module_.free_slots(start);
  }
  /// Ends a pass: the compute stream waits for all of its reductions.
  void end_pass() {
    for (auto& group : module_.groups()) group.end_pass(module_.stream());
  }

  /// A task that computes nothing (sharding::computes).
  void execute(const sharding::Task& task) {
    using sharding::Action;
    switch (task.action) {
      case Action::gather: return gather(task);
      case Action::gather_in_group: return gather_in_group(task);
      case Action::gather_across: return group(task.index).gather_across(start_);
      case Action::keep: return group(task.index).keep(module_.stream());
      case Action::release: return release(task);
      case Action::open_gradient: return open_gradient(task);
      case Action::reduce: return reduce(task.index);
      case Action::reduce_across: return group(task.index).reduce_across(module_.stream());
      case Action::close_gradient: return close_gradient(task);
      case Action::forward:
      case Action::loss:
      case Action::backward: return;
    }
  }

  /// Lets collectives on their way progress.
  void progress() {
    for (int index : gathering_) group(index).progress();
    for (int index : reducing_) group(index).progress();
  }

  /// Views of a unit's gathered weights. The compute stream waits for those still on their way.
  template <class Unit>
  typename Unit::Weights weights(const Unit&, int unit) {
    for (int index : module_.uses()[static_cast<std::size_t>(unit)].groups) {
      group(index).wait_for_weights(module_.stream());
      std::erase(gathering_, index);
    }
    std::array<Tensor<const Compute>, Unit::parameter_count> list;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto reference = module_.references(unit)[i];
      if (reference.present()) list[i] = group(reference.group).weight(reference.index);
    }
    return nn::unflatten<Unit::template FieldsOf, Tensor<const Compute>>(list);
  }

  /// Views of a unit's gradients.
  template <class Unit>
  typename Unit::Gradients gradients(const Unit&, int unit) {
    std::array<nn::GradientView<Accumulate>, Unit::parameter_count> list;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto reference = module_.references(unit)[i];
      if (reference.present()) list[i] = group(reference.group).gradient(reference.index);
    }
    return nn::unflatten<Unit::template FieldsOf, nn::GradientView<Accumulate>>(list);
  }

 private:
  typename Module::Group& group(int index) { return module_.groups()[static_cast<std::size_t>(index)]; }

  void gather(const sharding::Task& task) {
    group(task.index).unshard(task.slot < 0 ? typename Module::WeightSlot{} : module_.weight_slot(task.slot));
    gathering_.push_back(task.index);
  }

  void gather_in_group(const sharding::Task& task) {
    group(task.index).unshard_in_group(module_.weight_slot(task.slot));
    gathering_.push_back(task.index);
  }

  void release(const sharding::Task& task) {
    group(task.index).reshard();
    if (task.slot < 0) return;
    auto& slot = module_.weight_slot(task.slot);
    slot.free = module_.stream().record();
    slot.close();
  }

  void open_gradient(const sharding::Task& task) {
    if (task.slot < 0) return group(task.index).begin_gradient(nullptr);
    const auto& slot = module_.gradient_slot(task.slot);
    module_.stream().wait(slot.free);
    group(task.index).begin_gradient(slot.open());
  }

  void reduce(int index) {
    group(index).reduce(module_.stream());
    reducing_.push_back(index);
  }

  void close_gradient(const sharding::Task& task) {
    const auto reduced = group(task.index).reduced();
    std::erase(reducing_, task.index);
    if (task.slot < 0) return;
    auto& slot = module_.gradient_slot(task.slot);
    slot.free = reduced;
    slot.close();
  }

  Module& module_;
  Event start_;                 ///< of the pass
  std::vector<int> gathering_;  ///< groups whose weights are on their way
  std::vector<int> reducing_;   ///< groups whose gradients are being reduced, until their slot is closed
};

}  // namespace fsdp

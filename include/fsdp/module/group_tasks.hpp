// SPDX-License-Identifier: Apache-2.0
/// @file
/// Executes the tasks of a schedule that move weights and gradients.
///
/// A group counts as gathering from its gather until a unit uses it, and as reducing from its reduction until its slot
/// is closed. Long computations call `progress` for these groups.
#pragma once

#include <cstddef>
#include <vector>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp {

/// Runs a module's gathers, releases and reductions, and gives views of weights and gradients.
template <class Types>
class GroupTasks {
 public:
  using Module = ModuleMemory<Types>;
  using Compute = typename Module::Compute;
  using Accumulate = typename Module::Accumulate;
  using Event = typename Module::Device::Event;

  /// `module` must outlive it. `reduces`: whether gradients are reduced; if not, they are dropped.
  explicit GroupTasks(Module& module, bool reduces = true) : module_(module), reduces_(reduces) {}

  /// Starts a training step: the next reduction of each gradient overwrites the gradients at rest.
  void begin_step() {
    for (auto& group : module_.groups()) group.begin_step(module_.stream());
  }
  /// Begins a pass, whose collectives start after the event `start`.
  void begin_pass(const Event& start) {
    start_ = start;
    module_.free_slots(start);
  }
  /// Ends a pass: the compute stream waits for all of its reductions.
  void end_pass() {
    for (auto& group : module_.groups()) group.end_pass(module_.stream());
  }
  /// Ends a pass that was interrupted by an exception: waits for the collectives that it has started, and drops its
  /// gathered weights.
  void abandon_pass() {
    for (auto& group : module_.groups()) group.abandon_pass(module_.stream());
    module_.close_slots();
  }

  /// Runs a task that works on a group (sharding::works_on_unit). `computed`: whether this rank computes its
  /// micro-batch.
  void execute(const sharding::Task& task, bool computed = true) {
    using sharding::Action;
    switch (task.action) {
      case Action::gather: return gather(task);
      case Action::gather_in_group: return gather_in_group(task);
      case Action::gather_across: return group(task.index).gather_across(start_);
      case Action::keep: return group(task.index).keep(module_.stream());
      case Action::release: return release(task);
      case Action::open_gradient: return open_gradient(task);
      case Action::reduce: return reduce(task.index, computed);
      case Action::reduce_across: return group(task.index).reduce_across(module_.stream());
      case Action::close_gradient: return close_gradient(task);
      case Action::forward:
      case Action::loss:
      case Action::backward:
      case Action::send_input:
      case Action::fetch_input:
      case Action::exchange: return;
    }
  }

  /// Whether `execute` of this task would make the host wait for a collective. Lets that collective progress.
  bool would_wait(const sharding::Task& task) {
    // Asynchronous devices wait on queues, not on the host; and no event may be queried during graph capture.
    if constexpr (Module::Device::asynchronous)
      return false;
    else
      return sharding::may_wait(task.action) && !group(task.index).reduction_over();
  }
  /// Whether the weights that a unit uses have arrived. Lets their gathers progress.
  bool weights_arrived(int unit) {
    bool all = true;
    for (const int index : groups_of(unit)) all = group(index).weights_arrived() && all;
    return all;
  }
  /// Makes the compute stream wait for a unit's weights.
  void wait_for_weights(int unit) {
    for (const int index : groups_of(unit)) {
      group(index).wait_for_weights(module_.stream());
      std::erase(gathering_, index);
    }
  }
  /// Views of one of a unit's tensors, by its field; empty if the unit does not have that field.
  /// @{
  Tensor<const Compute> weight(int unit, std::size_t field) {
    const Reference reference = module_.references(unit)[field];
    return reference.present() ? group(reference.group).weight(reference.index) : Tensor<const Compute>();
  }
  GradientView<Accumulate> gradient(int unit, std::size_t field, bool makes_gradients) {
    const Reference reference = module_.references(unit)[field];
    if (!reference.present()) return {};
    auto& own = group(reference.group);
    return makes_gradients ? own.gradient(reference.index) : own.no_gradient(reference.index);
  }
  /// @}

  /// Lets collectives in flight progress.
  void progress() {
    for (const int index : gathering_) group(index).progress();
    for (const int index : reducing_) group(index).progress();
  }

 private:
  typename Module::Group& group(int index) { return module_.groups()[static_cast<std::size_t>(index)]; }
  const std::vector<int>& groups_of(int unit) const { return module_.uses()[static_cast<std::size_t>(unit)].groups; }

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

  void reduce(int index, bool computed) {
    if (!reduces_) return group(index).drop_gradient();
    group(index).reduce(module_.stream(), computed);
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
  bool reduces_;
  Event start_;                 ///< event after which the collectives of the pass start
  std::vector<int> gathering_;  ///< groups whose gathers are in flight
  std::vector<int> reducing_;   ///< groups whose gradients are being reduced, until their slot is closed
};

}  // namespace fsdp

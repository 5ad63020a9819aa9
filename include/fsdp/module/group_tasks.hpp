// SPDX-License-Identifier: Apache-2.0
/// @file
/// Executes the tasks of a schedule that move weights and gradients.
///
/// A group counts as gathering from its gather until a unit uses it, and as reducing from its reduction until its slot
/// is closed. Long computations call `progress` for these groups.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/precision/policies.hpp>
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
    for (auto& any : module_.groups()) with_group(any, [&](auto& group) { group.begin_step(module_.stream()); });
  }
  /// Begins a pass, whose collectives start after the event `start`.
  void begin_pass(const Event& start) {
    start_ = start;
    module_.free_slots(start);
  }
  /// Ends a pass: the compute stream waits for all of its reductions.
  void end_pass() {
    for (auto& any : module_.groups()) with_group(any, [&](auto& group) { group.end_pass(module_.stream()); });
  }
  /// Ends a pass that was interrupted by an exception: waits for the collectives that it has started, and drops its
  /// gathered weights.
  void abandon_pass() {
    for (auto& any : module_.groups()) with_group(any, [&](auto& group) { group.abandon_pass(module_.stream()); });
    module_.close_slots();
  }

  /// Runs a task that works on a group (sharding::works_on_unit). `computed`: whether this rank computes its
  /// micro-batch.
  void execute(const sharding::Task& task, bool computed = true) {
    if (!sharding::works_on_unit(task.action))
      with(task.index, [&](auto& group) { execute_on(group, task, computed); });
  }

  /// Whether `execute` of this task would make the host wait for a collective. Lets that collective progress.
  bool would_wait(const sharding::Task& task) {
    // Asynchronous devices wait on queues, not on the host; and no event may be queried during graph capture.
    if constexpr (Module::Device::asynchronous)
      return false;
    else
      return sharding::may_wait(task.action) && !with(task.index, [](auto& group) { return group.reduction_over(); });
  }
  /// Whether the weights that a unit uses have arrived. Lets their gathers progress.
  bool weights_arrived(int unit) {
    bool all = true;
    for (const int index : groups_of(unit))
      all = with(index, [](auto& group) { return group.weights_arrived(); }) && all;
    return all;
  }
  /// Makes the compute stream wait for a unit's weights.
  void wait_for_weights(int unit) {
    for (const int index : groups_of(unit)) {
      with(index, [&](auto& group) { group.wait_for_weights(module_.stream()); });
      std::erase(gathering_, index);
    }
  }
  /// Views of one of a unit's tensors, by its field; empty if the unit does not have that field. `weight` throws
  /// LogicError if the weight's type is not T.
  /// @{
  template <class T = Compute>
  Tensor<const T> weight(int unit, std::size_t field) {
    const Reference reference = module_.references(unit)[field];
    if (!reference.present()) return {};
    return with(reference.group, [&]<class G>(G& group) -> Tensor<const T> {
      if constexpr (std::is_same_v<typename G::Compute, T>)
        return group.weight(reference.index);
      else
        throw_weight_type(dtype_of<typename G::Compute>(), dtype_of<T>(), module_.parameter(reference).name);
    });
  }
  WeightView<typename Types::Precision> view(int unit, std::size_t field) {
    const Reference reference = module_.references(unit)[field];
    if (!reference.present()) return {};
    return with(reference.group,
                [&](auto& group) -> WeightView<typename Types::Precision> { return group.weight(reference.index); });
  }
  GradientView<Accumulate> gradient(int unit, std::size_t field, bool makes_gradients) {
    const Reference reference = module_.references(unit)[field];
    if (!reference.present()) return {};
    return with(reference.group, [&](auto& group) {
      return makes_gradients ? group.gradient(reference.index) : group.no_gradient(reference.index);
    });
  }
  /// @}

  /// Lets collectives in flight progress.
  void progress() {
    const auto advance = [](auto& group) { group.progress(); };
    for (const int index : gathering_) with(index, advance);
    for (const int index : reducing_) with(index, advance);
  }

 private:
  template <class F>
  decltype(auto) with(int index, F f) {
    return with_group(module_.groups()[static_cast<std::size_t>(index)], f);
  }
  const std::vector<int>& groups_of(int unit) const { return module_.uses()[static_cast<std::size_t>(unit)].groups; }

  template <class G>
  void execute_on(G& group, const sharding::Task& task, bool computed) {
    using sharding::Action;
    switch (task.action) {
      case Action::gather:
        group.unshard(task.slot < 0 ? Slot<typename Module::Device>{} : module_.weight_slot(task.slot));
        return gathering_.push_back(task.index);
      case Action::gather_in_group:
        group.unshard_in_group(module_.weight_slot(task.slot));
        return gathering_.push_back(task.index);
      case Action::gather_across: return group.gather_across(start_);
      case Action::keep: return group.keep(module_.stream());
      case Action::release: return release(group, task);
      case Action::open_gradient: return open_gradient(group, task);
      case Action::reduce:
        if (!reduces_) return group.drop_gradient();
        group.reduce(module_.stream(), computed);
        return reducing_.push_back(task.index);
      case Action::reduce_across: return group.reduce_across(module_.stream());
      case Action::close_gradient: return close_gradient(group, task);
      case Action::forward:
      case Action::loss:
      case Action::backward:
      case Action::send_input:
      case Action::fetch_input:
      case Action::exchange: return;
    }
  }

  template <class G>
  void release(G& group, const sharding::Task& task) {
    group.reshard();
    if (task.slot < 0) return;
    auto& slot = module_.weight_slot(task.slot);
    slot.free = module_.stream().record();
    slot.close();
  }

  template <class G>
  void open_gradient(G& group, const sharding::Task& task) {
    if (task.slot < 0) return group.begin_gradient(nullptr);
    const auto& slot = module_.gradient_slot(task.slot);
    module_.stream().wait(slot.free);
    group.begin_gradient(slot.template open<Accumulate>());
  }

  template <class G>
  void close_gradient(G& group, const sharding::Task& task) {
    const auto reduced = group.reduced();
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

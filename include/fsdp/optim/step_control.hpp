// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decisions of steps (clipping, loss scale, skipping) on the device. The host enqueues steps and reads the decisions
/// later.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>
#include <tessera/fsdp/module/gathered_numbers.hpp>
#include <tessera/fsdp/module/group_tensors.hpp>
#include <tessera/fsdp/module/module_memory.hpp>
#include <tessera/fsdp/module/module_plan.hpp>

namespace fsdp::optim {

/// The properties in which decisions of a step differ.
struct StepKind {
  int step_class = 0;
  double lr = 1;         ///< factor of the learning rate
  double clip = 0;       ///< clip of a separate norm; unused with norm 0
  std::size_t norm = 0;  ///< index of the norm that clips; see device::DecideStep
  friend bool operator==(const StepKind&, const StepKind&) = default;
};

/// All kinds of a module's decisions. They are the same on all ranks and do not depend on a rank's shards.
class StepKinds {
 public:
  /// `class_of` [groups]: the class of each group.
  StepKinds(int classes, GroupList groups, std::span<const int> class_of);
  /// Constructs the kinds of a module.
  explicit StepKinds(const ModuleState& module);

  /// Return the kinds in order, and their number. The kinds of the classes, without groups of parameters, come first.
  /// @{
  const std::vector<StepKind>& list() const { return list_; }
  std::size_t size() const { return list_.size(); }
  /// @}
  /// Returns the number of norms in addition to the global norm.
  std::int64_t apart() const { return apart_; }
  /// Returns the index of a parameter's kind.
  std::size_t index_of(int step_class, const Parameter& parameter) const;

 private:
  std::vector<StepKind> list_;
  std::int64_t apart_ = 0;
};

/// For each norm, the kind whose decision contains its last value, for the last two steps, which alternate between two
/// slots.
class NormMakers {
 public:
  /// Constructs the state after a step of all classes.
  explicit NormMakers(const StepKinds& kinds);

  /// Updates the state after a step in this slot. `steps(step_class)` returns whether the step included a class; norms
  /// of other classes remain those of earlier steps.
  void end_step(const StepKinds& kinds, std::size_t slot, FunctionRef<bool(int step_class)> steps);
  /// Returns the index of a norm's kind.
  std::size_t of(std::size_t slot, std::size_t norm) const { return made_by_[slot][norm]; }

 private:
  std::array<std::vector<std::size_t>, 2> made_by_;  // [slots][1 + separate norms]
};

/// The number of steps of a run. The decisions of the last two steps are stored in two slots, which steps use
/// alternately.
class StepCount {
 public:
  /// Returns the number of steps so far.
  std::int64_t steps() const { return steps_; }
  /// Return the slot of the next step, of the last step, and of the step `behind` steps before the last. The third
  /// throws LogicError if that decision is no longer stored.
  /// @{
  std::size_t next_slot() const;
  std::size_t last_slot() const;
  std::size_t kept_slot(std::int64_t behind) const;
  /// @}
  /// Counts a step, and returns its slot.
  std::size_t add();
  /// Resumes after `steps` steps. Throws InputError unless `taken`, the number of per-class step counts, equals
  /// `classes`.
  void resume(std::int64_t steps, std::size_t taken, int classes);

 private:
  std::int64_t steps_ = 0;
};

/// Returns the rules. Throws InputError for a clip that is negative or not finite.
device::StepRules checked(const device::StepRules& rules);
/// Throws InputError for a learning rate or a loss scale that is not finite as a float, or a scale that is not above 0.
void check(const device::StepInputs& inputs);
/// Throws LogicError unless the number of losses is at least 1 and at most the number of micro-batches.
void check_losses(std::int64_t losses, std::int64_t micro_batches);

}  // namespace fsdp::optim

// Compiled into the library.
FSDP_LIST(fsdp::optim::StepKind)

namespace fsdp::optim {

/// Computes the global L2 norm of the gradients and decides each step: the gradient scale that results from clipping
/// and loss scaling, and whether the step is skipped. This takes one collective of a few numbers per rank. Squares are
/// summed in double, in rank order, each element once, so that every rank makes the same decision. If a step is cut
/// into pieces (Reproducible), squares are summed exactly, so that the result is independent of the number of ranks;
/// the scale of these sums requires an additional collective.
///
/// Groups of parameters (OptimizerGroup) may have a different learning rate and be clipped by a separate norm. The
/// global norm omits the gradients of separately clipped groups. There is one decision for each combination; either all
/// of them step or all skip.
template <class Types>
class StepControl {
 public:
  using Module = ModuleMemory<Types>;
  using Device = typename Module::Device;
  using Decision = device::StepDecision;

  /// `module` must outlive it. Throws InputError for a clip that is negative or not finite.
  StepControl(Module& module, const device::StepRules& rules);

  /// Returns the number of steps enqueued since the start of the run.
  std::int64_t steps() const { return count_.steps(); }
  /// Resumes a run after `steps` steps. `taken`: the number of steps that changed the weights of each class
  /// (`taken()`).
  void resume(std::int64_t steps, std::span<const std::int64_t> taken);
  /// The same for a run whose orders all train the same groups. `skipped`: the number of skipped steps.
  void resume(std::int64_t steps, std::int64_t skipped) { resume(steps, std::array{steps - skipped}); }
  /// Returns the number of steps that changed the weights of each class; groups trained by the same orders form a
  /// class. Blocks the host until the last step is complete.
  std::vector<std::int64_t> taken();
  /// Returns the number of skipped steps of a run whose orders all train the same groups. Blocks the host until the
  /// last step's decision has arrived.
  std::int64_t skipped() { return steps() == 0 ? 0 : steps() - decision().taken; }

  /// Begins a step: copies its inputs to the device. `decide` and `end` must follow. Throws InputError for a learning
  /// rate or a loss scale that is not finite; dry runs ignore both.
  void begin(const device::StepInputs& inputs);
  /// Enqueues the decision from the module's gradients; the same work for the device in every step. `losses` contains
  /// this rank's loss sums, on the device: one for each micro-batch, or one for the whole step.
  void decide(Tensor<const double> losses);
  /// Ends the step: enqueues the copy of the decisions to the host.
  void end() {
    const std::size_t slot = count_.add();
    made_by_.end_step(kinds_, slot, [this](int step_class) { return module_->steps_class(step_class); });
    last_[slot].fetch(module_->stream(), decisions_on_device());
  }

  /// Returns a scratch integer in device memory that is free between steps: the next step's inputs overwrite it.
  Tensor<std::int64_t> between_steps() const { return {reinterpret_cast<std::int64_t*>(block_.data()), {1}}; }
  /// Returns the last decision about a shard, in device memory, for work that is enqueued next.
  Tensor<Decision> on_device(const typename Module::ParameterShard& shard) const {
    return on_device(kinds_.index_of(module_->step_class(shard), *shard.parameter));
  }
  /// Returns the decision of the last step, or (`behind` = 1) of the step before it. Blocks the host until the device
  /// has computed it. Throws CollectiveError at the deadline, or if a rank has failed.
  const Decision& decision(std::int64_t behind = 0) { return arrived(0, behind); }
  /// Returns whether the device has computed that decision. Non-blocking.
  bool decided(std::int64_t behind = 0) const { return last_[count_.kept_slot(behind)].copied().happened(); }
  /// Returns the norms of the unscaled gradients of the separately clipped groups of parameters, in order. Each norm
  /// belongs to the last step that computed gradients of the group, not later than the step that `decision(behind)`
  /// returns; 0 if there is no such step. Blocks and throws as `decision`.
  std::vector<double> norms_apart(std::int64_t behind = 0) {
    std::vector<double> norms;
    for (std::size_t norm = 1; norm <= static_cast<std::size_t>(kinds_.apart()); ++norm)
      norms.push_back(arrived(norm, behind).norm);
    return norms;
  }

 private:
  using Copy = device::HostCopy<Device, std::byte>;  ///< copy of all decisions, in their layout on the device

  std::int64_t decision_bytes() const {
    return (static_cast<std::int64_t>(kinds_.size()) - 1) * stride + std::int64_t{sizeof(Decision)};
  }
  std::byte* decisions_on_device() const { return block_.data() + decision_offset; }
  Tensor<Decision> on_device(std::size_t kind) const {
    return {reinterpret_cast<Decision*>(decisions_on_device() + static_cast<std::int64_t>(kind) * stride), {1}};
  }
  static Decision& decision_in(const Copy& copy, std::size_t kind) {
    return *reinterpret_cast<Decision*>(copy.values().data() + static_cast<std::int64_t>(kind) * stride);
  }
  /// Returns the decision that contains a norm's last value. With norm 0, returns the decision of the classes.
  const Decision& arrived(std::size_t norm, std::int64_t behind) {
    const std::size_t slot = count_.kept_slot(behind);
    comm::wait_for(module_->communicator(), last_[slot].copied(), {"a step's decision"});
    return decision_in(last_[slot], made_by_.of(slot, norm));
  }

  static constexpr std::int64_t first_further_loss = 3;  ///< index of a column of DecideStep::sums
  static constexpr std::int64_t decision_offset = device::alignment;
  static constexpr std::int64_t stride = device::alignment;  ///< bytes from one decision to the next
  static_assert(sizeof(Decision) <= stride);
  static_assert(sizeof(device::StepInputs) <= decision_offset);

  /// Calls f(shard, norm) for each stepped shard, with the index of the norm that clips it.
  template <class F>
  void for_each_stepped(const F& f) {
    for (const auto& shard : module_->shards())
      if (shard.owned && module_->is_stepped(shard)) f(shard, shard.parameter->step.clip_group);
  }
  /// Sums the squares of each norm in integers, relative to the largest gradient of any rank.
  void sum_exactly(device::DecideStep& decision);

  device::StepInputs* inputs_on_device() const { return reinterpret_cast<device::StepInputs*>(block_.data()); }

  Module* module_;
  device::StepRules rules_;
  StepKinds kinds_;  ///< kinds of decisions
  GatheredNumbers<typename Module::Comm> numbers_;
  std::optional<GatheredNumbers<typename Module::Comm, std::int64_t>> largest_, exact_;  ///< if there are pieces
  device::Block<Device> block_;  // StepInputs, StepDecision [kinds]
  std::array<device::HostCopy<Device, device::StepInputs>, 2> inputs_;
  std::array<Copy, 2> last_{Copy(decision_bytes()), Copy(decision_bytes())};
  NormMakers made_by_{kinds_};
  StepCount count_;
};

template <class Types>
StepControl<Types>::StepControl(Module& module, const device::StepRules& rules)
    : module_(&module),
      rules_(checked(rules)),
      kinds_(module),
      numbers_(module.communicator(), module.ledger(),
               first_further_loss - 1 + module.settings().passes.micro_batches + kinds_.apart()),
      block_(module.ledger(), device::MemoryKind::scratch, decision_offset + decision_bytes()) {
  if (module.step_pieces() == 0) return;
  largest_.emplace(module.communicator(), module.ledger(), 1 + kinds_.apart());
  exact_.emplace(module.communicator(), module.ledger(), 2 * (1 + kinds_.apart()));
}

template <class Types>
void StepControl<Types>::resume(std::int64_t steps, std::span<const std::int64_t> taken) {
  count_.resume(steps, taken.size(), module_->step_classes());
  const std::size_t slot = count_.last_slot();
  for (std::size_t i = 0; i < kinds_.size(); ++i)
    decision_in(last_[slot], i) = {.taken = taken[static_cast<std::size_t>(kinds_.list()[i].step_class)]};
  last_[slot].send(module_->stream(), decisions_on_device());
  module_->synchronize();
}

template <class Types>
std::vector<std::int64_t> StepControl<Types>::taken() {
  std::vector<std::int64_t> list;
  Copy copy(decision_bytes());
  copy.fetch(module_->stream(), decisions_on_device());
  module_->synchronize();
  for (int i = 0; i < module_->step_classes(); ++i)
    list.push_back(decision_in(copy, static_cast<std::size_t>(i)).taken);
  return list;
}

template <class Types>
void StepControl<Types>::begin(const device::StepInputs& inputs) {
  if constexpr (!Device::counts_only) check(inputs);
  auto& host_inputs = inputs_[count_.next_slot()];
  comm::wait_for(module_->communicator(), host_inputs.copied(), {"a step's inputs"});  // the copy of two steps ago
  host_inputs.value() = inputs;
  host_inputs.send(module_->stream(), inputs_on_device());
}

template <class Types>
void StepControl<Types>::decide(Tensor<const double> losses) {
  auto& stream = module_->stream();
  const Tensor<double> own = numbers_.own();  // [3 + further micro-batches + separate norms]
  const std::int64_t micro_batches = own.numel() - kinds_.apart() - first_further_loss + 1;
  check_losses(losses.numel(), micro_batches);
  device::move<Device>(stream, losses.data(), own.data(), 1);
  if (const std::int64_t further = losses.numel() - 1; further > 0)
    device::move<Device>(stream, losses.data() + 1, own.data() + first_further_loss, further);
  const Tensor<double> squares = own.slice(1, 2), forfeited = own.slice(2, 3);
  const Tensor<double> squares_apart = own.slice(own.numel() - kinds_.apart(), own.numel());
  device::enqueue(stream, device::Fill<double>{.y = squares, .value = 0.0f});
  device::enqueue(stream, device::Fill<double>{.y = forfeited, .value = module_->progress().forfeited ? 1.0f : 0.0f});
  if (kinds_.apart() > 0) device::enqueue(stream, device::Fill<double>{.y = squares_apart, .value = 0.0f});
  device::DecideStep decision{
      .rules = rules_, .apart = kinds_.apart(), .inputs = {inputs_on_device(), {1}}, .sums = {}, .step = {}};
  if (exact_)
    sum_exactly(decision);
  else
    for_each_stepped([&](const auto& shard, std::int64_t norm) {
      const Tensor<double> sum = norm == 0 ? squares : squares_apart.slice(norm - 1, norm);
      device::enqueue(stream, device::SumOfSquares{.x = shard.gradient, .sum = sum});
    });
  decision.sums = numbers_.gather(stream, {"loss and gradient norm"});  // [ranks, numbers of a rank]
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    const StepKind& kind = kinds_.list()[i];
    if (!module_->steps_class(kind.step_class)) continue;
    decision.rules.clip = kind.norm == 0 ? rules_.clip : kind.clip;
    decision.lr = kind.lr;
    decision.norm = static_cast<std::int64_t>(kind.norm);
    decision.step = on_device(i);
    device::enqueue(stream, decision);
  }
}

template <class Types>
void StepControl<Types>::sum_exactly(device::DecideStep& decision) {
  auto& stream = module_->stream();
  const Tensor<std::int64_t> largest = largest_->own(), sum = exact_->own();
  device::clear(stream, largest);
  device::clear(stream, sum);
  for_each_stepped([&](const auto& shard, std::int64_t norm) {
    device::enqueue(stream, device::LargestMagnitude{.x = shard.gradient, .largest = largest.slice(norm, norm + 1)});
  });
  decision.largest = largest_->gather(stream, {"largest gradient"});  // [ranks, 1 + separate norms]
  for_each_stepped([&](const auto& shard, std::int64_t norm) {
    device::enqueue(stream, device::FixedPointSquares{.x = shard.gradient,
                                                      .largest = decision.largest.slice_columns(norm, norm + 1),
                                                      .sum = sum.slice(2 * norm, 2 * norm + 2)});
  });
  decision.exact = exact_->gather(stream, {"exact gradient norm"});  // [ranks, 2 (1 + separate norms)]
}

}  // namespace fsdp::optim

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decisions of steps (clipping, loss scale, skipping) on the device. The host enqueues steps and reads the decisions
/// later.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/host_copy.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>
#include <tessera/fsdp/module/gathered_numbers.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>

namespace fsdp::optim {

/// Computes the global L2 norm of the gradients and decides each step: the scale that clipping and loss scaling give,
/// and whether the step is skipped. This takes one collective of a few numbers per rank. Squares are summed in double,
/// in rank order, each element once, so that every rank makes the same decision. Where a step is cut into pieces
/// (Reproducible), they are summed exactly, so that the number of ranks does not matter; the scale of these sums takes
/// a collective of its own.
///
/// Groups of parameters (OptimizerGroup) may have another learning rate and be clipped by a norm of their own, which
/// the global norm leaves out. There is a decision for each combination; all are to step, or all to skip.
template <class StackT>
class StepControl {
 public:
  using Stack = StackT;
  using Module = ShardedModule<Stack>;
  using Device = typename Module::Device;
  using Decision = device::StepDecision;

  /// `module` must outlive it. Throws InputError for a clip that is negative or not finite.
  StepControl(Module& module, const device::StepRules& rules)
      : module_(&module),
        rules_(checked(rules)),
        kinds_(kinds_of(module)),
        apart_(largest_norm(kinds_)),
        numbers_(module.communicator(), module.ledger(),
                 first_further_loss - 1 + module.settings().passes.micro_batches + apart_),
        block_(module.ledger(), device::MemoryKind::scratch,
               decision_offset + (std::ssize(kinds_) - 1) * stride + std::int64_t{sizeof(Decision)}) {
    for (std::int64_t norm = 1; norm <= apart_; ++norm)
      kind_apart_.push_back(static_cast<std::size_t>(std::ranges::find(kinds_, norm, &Kind::norm) - kinds_.begin()));
    for (auto& copies : last_apart_)
      copies = std::vector<device::HostCopy<Device, Decision>>(static_cast<std::size_t>(apart_));
    if (module.step_pieces() == 0) return;
    largest_.emplace(module.communicator(), module.ledger(), 1 + apart_);
    exact_.emplace(module.communicator(), module.ledger(), 2 * (1 + apart_));
  }

  /// Number of steps queued since the start of the run.
  std::int64_t steps() const { return steps_; }
  /// Continues a run after `steps` steps. `taken`: how many changed the weights of each class (`taken()`).
  void resume(std::int64_t steps, std::span<const std::int64_t> taken) {
    require<InputError>(std::ssize(taken) == module_->step_classes(), "step control: numbers of steps of ",
                        taken.size(), " classes of groups, and these orders make ", module_->step_classes());
    steps_ = steps;
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      last_[slot_of(steps - 1)].value() = {.taken = taken[static_cast<std::size_t>(kinds_[i].step_class)]};
      last_[slot_of(steps - 1)].send(module_->stream(), on_device(i).data());
      module_->synchronize();
    }
  }
  /// The same for a run whose orders train the same groups, with the number of its skipped steps.
  void resume(std::int64_t steps, std::int64_t skipped) { resume(steps, std::array{steps - skipped}); }
  /// Number of steps that changed the weights of each class; groups trained by the same orders form a class. Blocks the
  /// host until the last step is done.
  std::vector<std::int64_t> taken() {
    std::vector<std::int64_t> list;
    device::HostCopy<Device, Decision> copy;
    for (std::size_t i = 0; i < classes(); ++i) {
      copy.fetch(module_->stream(), on_device(i).data());
      module_->synchronize();
      list.push_back(copy.value().taken);
    }
    return list;
  }
  /// Number of skipped steps of a run whose orders train the same groups. Blocks the host until the last step's
  /// decision has arrived.
  std::int64_t skipped() { return steps_ == 0 ? 0 : steps_ - decision().taken; }

  /// Begins a step: sends its inputs to the device. `decide` and `end` must follow.
  void begin(const device::StepInputs& inputs) {
    auto& host_inputs = inputs_[slot_of(steps_)];
    comm::wait_for(module_->communicator(), host_inputs.copied(), {"a step's inputs"});  // two steps ago
    host_inputs.value() = inputs;
    host_inputs.send(module_->stream(), inputs_on_device());
  }
  /// Enqueues the decision from the module's gradients; the same work for the device in every step. `losses` are this
  /// rank's sums, on the device: one for each micro-batch, or one for all.
  void decide(Tensor<const double> losses) {
    auto& stream = module_->stream();
    const Tensor<double> own = numbers_.own();  // [3 + further micro-batches + norms apart]
    const std::int64_t micro_batches = own.numel() - apart_ - first_further_loss + 1;
    require(losses.numel() >= 1 && losses.numel() <= micro_batches, "step control: ", losses.numel(), " losses of ",
            micro_batches, " micro-batches");
    device::move<Device>(stream, losses.data(), own.data(), 1);
    if (const std::int64_t further = losses.numel() - 1; further > 0)
      device::move<Device>(stream, losses.data() + 1, own.data() + first_further_loss, further);
    const Tensor<double> squares = own.slice(1, 2), forfeited = own.slice(2, 3);
    const Tensor<double> squares_apart = own.slice(own.numel() - apart_, own.numel());
    device::enqueue(stream, device::Fill<double>{.y = squares, .value = 0.0f});
    device::enqueue(stream, device::Fill<double>{.y = forfeited, .value = module_->progress().forfeited ? 1.0f : 0.0f});
    if (apart_ > 0) device::enqueue(stream, device::Fill<double>{.y = squares_apart, .value = 0.0f});
    device::DecideStep decision{
        .rules = rules_, .apart = apart_, .inputs = {inputs_on_device(), {1}}, .sums = {}, .step = {}};
    if (exact_)
      sum_exactly(decision);
    else
      for_each_stepped([&](const auto& shard, std::int64_t norm) {
        const Tensor<double> sum = norm == 0 ? squares : squares_apart.slice(norm - 1, norm);
        device::enqueue(stream, device::SumOfSquares{.x = shard.gradient, .sum = sum});
      });
    decision.sums = numbers_.gather(stream, {"loss and gradient norm"});  // [ranks, numbers of a rank]
    for (std::size_t i = 0; i < kinds_.size(); ++i)
      if (module_->steps_class(kinds_[i].step_class)) {
        decision.rules.clip = kinds_[i].norm == 0 ? rules_.clip : kinds_[i].clip;
        decision.lr = kinds_[i].lr;
        decision.norm = kinds_[i].norm;
        decision.step = on_device(i);
        device::enqueue(stream, decision);
      }
  }
  /// Ends the step: enqueues the copy of the decision to the host.
  void end() {
    std::size_t stepped = 0;
    while (stepped + 1 < classes() && !module_->steps_class(kinds_[stepped].step_class)) ++stepped;
    last_[slot_of(steps_)].fetch(module_->stream(), on_device(stepped).data());
    for (std::size_t i = classes(); i < kinds_.size(); ++i)
      if (kinds_[i].norm > 0 && module_->steps_class(kinds_[i].step_class))
        kind_apart_[static_cast<std::size_t>(kinds_[i].norm - 1)] = i;
    for (std::size_t norm = 0; norm < kind_apart_.size(); ++norm)  // also those that this step has not made anew
      last_apart_[slot_of(steps_)][norm].fetch(module_->stream(), on_device(kind_apart_[norm]).data());
    ++steps_;
  }

  /// The last decision about a shard, in device memory: for work enqueued next.
  Tensor<Decision> on_device(const typename Module::ParameterShard& shard) const {
    const Kind kind = kind_of(module_->step_class(shard), *shard.parameter);
    return on_device(static_cast<std::size_t>(std::ranges::find(kinds_, kind) - kinds_.begin()));
  }
  /// Returns the decision of the last step, or (`behind` = 1) of the step before it. Blocks the host until the device
  /// has made it. Throws CollectiveError at the deadline, or if a rank has failed.
  const Decision& decision(std::int64_t behind = 0) {
    require(behind >= 0 && behind < std::ssize(last_) && behind < steps_, "step control: ", behind,
            " steps behind the last are not kept");
    return arrived(last_[slot_of(steps_ - 1 - behind)]);
  }
  /// Returns the norms of the unscaled gradients of the groups of parameters that are clipped apart, in their order.
  /// Each is of the last step, up to the one that `decision` returns, that made gradients of the group; 0 if there is
  /// none. Otherwise as `decision`.
  std::vector<double> norms_apart(std::int64_t behind = 0) {
    std::vector<double> norms;
    if (apart_ > 0) (void)decision(behind);  // there is such a step
    for (auto& copy : last_apart_[slot_of(steps_ - 1 - behind)]) norms.push_back(arrived(copy).norm);
    return norms;
  }

 private:
  /// What decisions differ in. The first ones are those of the classes, without groups of parameters.
  struct Kind {
    int step_class = 0;
    double lr = 1;          ///< factor of the learning rate
    double clip = 0;        ///< not used with norm 0
    std::int64_t norm = 0;  ///< number of the norm that clips; see DecideStep
    friend bool operator==(const Kind&, const Kind&) = default;
  };

  static Kind kind_of(int step_class, const Parameter& parameter) {
    const StepOptions& step = parameter.step;
    return {.step_class = step_class, .lr = step.lr, .clip = step.clip, .norm = step.clip_group};
  }
  /// The same on all ranks, whatever shards they hold.
  static std::vector<Kind> kinds_of(const Module& module) {
    std::vector<Kind> kinds;
    for (int i = 0; i < module.step_classes(); ++i) kinds.push_back({.step_class = i});
    for (int group = 0; group < static_cast<int>(module.groups().size()); ++group) {
      const auto& own = module.groups()[static_cast<std::size_t>(group)];
      if (!own.facts().trainable) continue;
      for (const Parameter& parameter : own.parameters())
        if (const Kind kind = kind_of(module.step_class(group), parameter); !std::ranges::count(kinds, kind))
          kinds.push_back(kind);
    }
    return kinds;
  }
  static std::int64_t largest_norm(const std::vector<Kind>& kinds) {
    return std::ranges::max(kinds, {}, &Kind::norm).norm;
  }
  std::size_t classes() const { return static_cast<std::size_t>(module_->step_classes()); }
  Tensor<Decision> on_device(std::size_t kind) const {
    return {reinterpret_cast<Decision*>(block_.data() + decision_offset + static_cast<std::int64_t>(kind) * stride),
            {1}};
  }
  const Decision& arrived(device::HostCopy<Device, Decision>& copy) {
    comm::wait_for(module_->communicator(), copy.copied(), {"a step's decision"});
    return copy.value();
  }

  static constexpr std::int64_t first_further_loss = 3;  ///< column of DecideStep::sums
  static constexpr std::int64_t decision_offset = device::alignment;
  static constexpr std::int64_t stride = device::alignment;  ///< from one decision to the next
  static_assert(sizeof(Decision) <= stride);
  static_assert(sizeof(device::StepInputs) <= decision_offset);

  /// Calls f(shard, number of its norm).
  template <class F>
  void for_each_stepped(const F& f) {
    for (const auto& shard : module_->shards())
      if (shard.owned && module_->is_stepped(shard)) f(shard, shard.parameter->step.clip_group);
  }
  /// Sums the squares of each norm in integers, relative to the largest gradient of any rank.
  void sum_exactly(device::DecideStep& decision) {
    auto& stream = module_->stream();
    const Tensor<std::int64_t> largest = largest_->own(), sum = exact_->own();
    device::clear(stream, largest);
    device::clear(stream, sum);
    for_each_stepped([&](const auto& shard, std::int64_t norm) {
      device::enqueue(stream, device::LargestMagnitude{.x = shard.gradient, .largest = largest.slice(norm, norm + 1)});
    });
    decision.largest = largest_->gather(stream, {"largest gradient"});  // [ranks, 1 + norms apart]
    for_each_stepped([&](const auto& shard, std::int64_t norm) {
      device::enqueue(stream, device::FixedPointSquares{.x = shard.gradient,
                                                        .largest = decision.largest.slice_columns(norm, norm + 1),
                                                        .sum = sum.slice(2 * norm, 2 * norm + 2)});
    });
    decision.exact = exact_->gather(stream, {"exact gradient norm"});  // [ranks, 2 (1 + norms apart)]
  }

  static device::StepRules checked(const device::StepRules& rules) {
    require<InputError>(std::isfinite(rules.clip) && rules.clip >= 0, "step: the clip is ", rules.clip,
                        "; the largest norm of gradients must be finite and above 0, or 0 for no clipping");
    return rules;
  }
  static std::size_t slot_of(std::int64_t step) { return static_cast<std::size_t>(step & 1); }
  device::StepInputs* inputs_on_device() const { return reinterpret_cast<device::StepInputs*>(block_.data()); }

  Module* module_;
  device::StepRules rules_;
  std::vector<Kind> kinds_;  ///< of decisions
  std::int64_t apart_;       ///< norms besides the global one
  GatheredNumbers<typename Module::Comm> numbers_;
  std::optional<GatheredNumbers<typename Module::Comm, std::int64_t>> largest_, exact_;  ///< where there are pieces
  device::Block<Device> block_;  // StepInputs, StepDecision [kinds]
  std::array<device::HostCopy<Device, device::StepInputs>, 2> inputs_;
  std::array<device::HostCopy<Device, Decision>, 2> last_;
  std::array<std::vector<device::HostCopy<Device, Decision>>, 2> last_apart_;  // [norms apart]: one decision of each
  std::vector<std::size_t> kind_apart_;  // [norms apart]: whose decision is the last with the norm
  std::int64_t steps_ = 0;
};

}  // namespace fsdp::optim

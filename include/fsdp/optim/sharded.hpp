// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sharded parameters, gradients and optimizer state for code that has tensors, forward and backward of its own.
///
///     fsdp::Sharded<Stack> module(communicator, {{"encoder", {{"w", {64, 128}}, {"b", {64}}}}});
///     module.initialize(seed);
///     auto pass = module.train();
///     { auto use = pass.forward(0); encode(use.weight("w"), use.weight("b")); }
///     { auto use = pass.backward(0); encode_gradient(use.weight("w"), use.gradient("w"), use.gradient("b")); }
///     pass.finish();
///     module.step(loss, {.lr = 1e-3});
///
/// One object belongs to one rank, and calls on it come from one thread at a time. It prints nothing, ends no process,
/// reads no environment and keeps no setting of a thread: errors are exceptions.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/comm/agreement.hpp>
#include <tessera/comm/simulated.hpp>
#include <tessera/comm/traffic.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/core/named_values.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/host_copy.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/module/meta_stack.hpp>
#include <tessera/fsdp/module/module_plan.hpp>
#include <tessera/fsdp/module/pass.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/optim/adamw.hpp>
#include <tessera/fsdp/optim/initialize.hpp>
#include <tessera/fsdp/optim/instances.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>
#include <tessera/fsdp/optim/statistics.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sharding/described.hpp>
#include <tessera/fsdp/sharding/rules.hpp>

namespace fsdp {

/// Settings of a Sharded.
template <class Optimizer = optim::AdamW>
struct ShardedSettings {
  std::vector<Order> orders = {};  ///< chosen by index; empty: the chain of all units that are gathered
  /// Most in a step; `train` may be given fewer. A step has at most 2^20 computations. Where a step is cut into pieces
  /// (Reproducible), pieces and ranks determine the number, and this is 1 or that number.
  int micro_batches = 1;
  Optimizer optimizer = {};                ///< with its constants
  device::StepRules rules = {};            ///< clipping, and whether steps with overflowing gradients are skipped
  UnitOptions unit_options = {};           ///< frozen and replicated names, groups of parameters, merging of units
  int threads = 1;                         ///< of the library's own operations: optimizer and copies
  bool fixed_slots = true;                 ///< see sharding::Problem
  std::int64_t budget = 0;                 ///< most bytes of this rank; 0: no limit
  LendMemory lend = {};                    ///< see ModuleSettings
  std::vector<Statistic> statistics = {};  ///< small tensors that are no parameters
};

/// Bytes that a rank holds.
struct PlannedBytes {
  device::BytesByKind bytes{};  ///< by kind; scratch includes the arena
  std::int64_t arena = 0;       ///< of the library's temporary tensors

  /// Sum of the bytes of all kinds.
  std::int64_t sum() const;
  friend bool operator==(const PlannedBytes&, const PlannedBytes&) = default;
};

namespace detail {

/// Throws InputError on all ranks unless all have the same optimizer, rules and statistics.
void require_same_settings(const comm::Ranks& ranks, std::string_view optimizer, const NamedValues& constants,
                           const device::StepRules& rules, const std::vector<Statistic>& statistics);

/// Throws MemoryError if `planned` is more than a budget that is not 0.
void require_budget(const PlannedBytes& planned, std::int64_t budget, int rank);
/// Returns the chain of all units that are gathered.
std::vector<Order> chain_of(const std::vector<Unit>& units);
/// Sets the micro-batches of passes from the strategy's `pieces`, if it has any. Throws InputError for pieces and
/// statistics.
void set_pieces(PassPlan& passes, int pieces, int ranks, const std::vector<Statistic>& statistics);
/// Throws LogicError while a pass is under way: weights are then in use.
void require_no_pass(const PassProgress& progress, const char* what);
/// Throws LogicError unless a training pass has finished since the last step.
void require_gradients(const PassProgress& progress);
/// Throws LogicError unless there is a loss for each piece of the step that this rank computed; there may be fewer of a
/// pass that was forfeited.
void require_losses(std::size_t losses, ModuleState& module);
/// How many losses this rank gives: one for each piece, or one for all.
int own_losses(const ModuleState& module);
/// Elements of the losses on the device: one for each micro-batch where a step is cut into pieces.
std::int64_t losses_of(const ModuleState& module);
/// Throws InputError unless a whole tensor has as many elements as the parameter.
void require_elements(const Parameter& parameter, std::size_t given);
/// Throws DivergedError: step number `step` was stopped.
[[noreturn]] void throw_diverged(std::int64_t step, const device::StepDecision& decision);

/// The memory of a step's losses, and what a module holds.
/// @{
template <class Module>
auto loss_block_of(Module& module) {
  return module.block_of(device::MemoryKind::scratch, losses_of(module) * std::int64_t{sizeof(double)});
}
template <class Module>
PlannedBytes held_by(Module& module) {
  return {.bytes = module.peak_bytes(), .arena = module.arena().peak()};
}
/// @}

/// See Sharded::plan. `Meta`: a MetaModuleStack.
template <class Meta, class Strategy, class Optimizer>
PlannedBytes planned_bytes(typename Meta::Comm& simulated, const std::vector<Unit>& units, const Strategy& strategy,
                           const ModuleSettings& settings, const Optimizer& constants, const device::StepRules& rules,
                           const std::vector<Statistic>& list) {
  ShardedModule<Meta> module(simulated, units, strategy, settings);
  optim::ShardedOptimizer<Meta, Optimizer> optimizer(module, constants, rules);
  const Statistics<ShardedModule<Meta>> statistics(module, list);
  const auto loss = loss_block_of(module);
  optimizer.step({reinterpret_cast<double*>(loss.data()), {losses_of(module)}}, {});
  return held_by(module);
}

/// `how`: `extern template` or `template`. src/fsdp/optim/meta_cpu.cpp compiles those on Cpu with the default
/// optimizer.
#define FSDP_PLANNED_BYTES(how, Precision)                                                           \
  how PlannedBytes planned_bytes<PlainMetaStack<device::Cpu, Precision>>(                            \
      comm::Simulated<device::MetaOf<device::Cpu>>&, const std::vector<Unit>&, const PlainSharding&, \
      const ModuleSettings&, const optim::AdamW&, const device::StepRules&, const std::vector<Statistic>&);
FSDP_PLANNED_BYTES(extern template, Fp32)
FSDP_PLANNED_BYTES(extern template, Bf16Mixed)

}  // namespace detail

/// Units of named tensors and their optimizer, sharded over the ranks of a communicator. See the head of this file.
template <class StackT, class OptimizerT = optim::AdamW>
class Sharded {
  static_assert(check_stack<StackT>(),
                "fsdp: the first argument of Sharded<Stack, Optimizer> is not a Stack; write "
                "Sharded<Stack<FullyShard<>, comm::Threads<>, Fp32>>, with your own policies");

 public:
  using Stack = StackT;
  using Comm = typename Stack::Comm;
  using Device = typename Stack::Device;
  using Strategy = typename Stack::Sharding;
  using Module = ShardedModule<Stack>;
  using Optimizer = optim::ShardedOptimizer<Stack, OptimizerT>;
  using Settings = ShardedSettings<OptimizerT>;

  /// Plans, checks the schedules of all passes, compares them over ranks and allocates; a step allocates no tensor
  /// memory. Weights have no values until one of `initialize`, `fill`, `set` or a checkpoint gives them. Collective.
  /// Throws InputError on all ranks if units, orders and strategy do not fit together or differ between ranks, and
  /// MemoryError, before anything is allocated, if a rank would hold more than its budget. `communicator` must outlive
  /// it.
  Sharded(Comm& communicator, const std::vector<Unit>& units, const Strategy& strategy = {}, Settings settings = {})
      : planned_(agreed_plan(communicator, units, strategy, settings)),
        module_(communicator, units, strategy,
                settings_of(units, strategy, communicator.size(), settings, planned_.arena)),
        optimizer_(module_, settings.optimizer, settings.rules),
        statistics_(module_, settings.statistics),
        loss_block_(detail::loss_block_of(module_)),
        loss_(reinterpret_cast<double*>(loss_block_.data()), {detail::losses_of(module_)}),
        losses_on_host_(detail::losses_of(module_)) {
    statistics_.initialize(0);  // for weights that are not initialized, but filled, set or loaded
  }

  /// Returns what rank `rank` of `ranks` would hold. Allocates nothing, and needs no communicator.
  static PlannedBytes plan(int ranks, int rank, const std::vector<Unit>& units, const Strategy& strategy = {},
                           const Settings& settings = {}) {
    using Meta = MetaModuleStack<Stack>;
    typename Meta::Comm simulated(comm::simulated_world<Comm>(ranks, rank));  // checks the numbers of ranks
    return detail::planned_bytes<Meta>(simulated, units, described<Stack, Meta>(strategy),
                                       settings_of(units, strategy, ranks, settings, 0), settings.optimizer,
                                       settings.rules, settings.statistics);
  }

  /// Set the weights. `initialize`: as functions of seed, name and index. `fill`: by a callback, for this rank's ranges
  /// alone. `set`: from a whole tensor, of which each rank takes its part. All ranks must give the same. This is
  /// compared under Options::checks alone, where the three are collective: InputError on all ranks for another seed or
  /// other values of a whole tensor, before anything is written, and for `fill` if replicas were given other values.
  /// Throws InputError for an unknown name or another number of elements, LogicError inside of a pass.
  /// @{
  void initialize(std::uint64_t seed) {
    detail::require_no_pass(module_.progress(), "initialize");
    optim::initialize(module_, seed);
    statistics_.initialize(seed);
  }
  void fill(const std::function<void(const Parameter&, std::int64_t begin, std::span<float>)>& values) {
    detail::require_no_pass(module_.progress(), "fill");
    for (const auto& shard : module_.shards())
      with_host_weights(module_, shard, Access::write, [&](Tensor<float> part, std::int64_t begin) {
        values(*shard.parameter, begin, {part.data(), static_cast<std::size_t>(part.numel())});
      });
    detail::check_replicas(module_, "fill");
    module_.sync_model_weights();
  }
  void set(std::string_view name, std::span<const float> whole) {
    detail::require_no_pass(module_.progress(), "set");
    comm::check_same(module_.communicator(), "set", "set: ranks give other weights", [&] {
      const std::uint64_t hash = detail::hash_of(hash_seed, Tensor<const float>(whole.data(), {std::ssize(whole)}));
      return message("hash of the ", whole.size(), " elements of ", name, " = ", hash);
    });
    const Parameter& parameter = module_.parameter(name);
    detail::require_elements(parameter, whole.size());
    for (const auto& shard : module_.shards()) {
      if (shard.parameter->name != name) continue;
      with_host_weights(module_, shard, Access::replace, [&](Tensor<float> part, std::int64_t begin) {
        std::copy_n(whole.data() + begin, part.numel(), part.data());
      });
    }
    module_.sync_model_weights([&](const std::string& other) { return other == name; });
  }
  /// @}
  /// Calls f(parameter, tensor) with the whole tensors whose names match one of `patterns`, in host memory, one group
  /// at a time; see with_full_parameters. Collective. Gradients and states: tessera/fsdp/module/full_values.hpp,
  /// tessera/fsdp/optim/full_states.hpp.
  void with_full(const std::vector<std::string>& patterns,
                 const std::function<void(const Parameter&, Tensor<const float>)>& f) {
    with_full_parameters(module_, patterns,
                         [&](const Parameter& parameter, Tensor<const float> values) { f(parameter, values); });
  }

  /// Begins a pass; see Pass. A training pass makes all micro-batches of a step (0: as many as planned), one that
  /// evaluates makes one, forward only.
  /// @{
  Pass<Stack> train(int micro_batches = 0, int order = 0) {
    return Pass<Stack>(module_, sharding::Pass::train, order, micro_batches);
  }
  Pass<Stack> evaluate(int order = 0) { return Pass<Stack>(module_, sharding::Pass::evaluate, order); }
  /// @}

  /// Sums losses and squared gradients over ranks, clips, decides and steps, and returns the decision: the same on all
  /// ranks. `loss`: this rank's sum; where a step is cut into pieces, `losses` has one for each piece that this rank
  /// computed, in their order. `inputs` must be the same on all ranks. Collective. If a rank forfeited the pass, the
  /// step is skipped. Throws LogicError unless a training pass has finished since the last step, and for another number
  /// of losses; InputError for a learning rate that is not finite or not given, and DivergedError if loss or
  /// gradient are not finite: no weight has then changed, and training may go on.
  /// @{
  device::StepDecision step(double loss, const device::StepInputs& inputs) {
    // After a forfeited pass, a rank without a piece passes no loss.
    const std::size_t given = module_.progress().forfeited && detail::own_losses(module_) == 0 ? 0 : 1;
    return step(std::span<const double>(&loss, given), inputs);
  }
  device::StepDecision step(std::span<const double> losses, const device::StepInputs& inputs) {
    detail::require_losses(losses.size(), module_);
    const Tensor<double> values = losses_on_host_.values();
    std::fill_n(values.data(), values.numel(), 0.0);
    std::copy(losses.begin(), losses.end(), values.data());
    losses_on_host_.send(module_.stream(), loss_.data());
    queue_step(inputs);
    const device::StepDecision decision = result();
    if (decision.stopped == 0) return decision;
    optimizer_.control().resume(optimizer_.steps(), optimizer_.control().taken());  // no longer stopped
    detail::throw_diverged(optimizer_.steps(), decision);
  }
  /// @}
  /// The same without waiting for the device, with the losses in `loss()`; after a loss or gradient that is not finite
  /// all later steps are skipped (StepDecision::stopped).
  void queue_step(const device::StepInputs& inputs) {
    detail::require_gradients(module_.progress());
    begin_step(inputs);
    update();
    end_step();
  }
  /// `queue_step` in parts, for a pass and its step as one graph. `begin_step` sends the inputs and `end_step` fetches
  /// the decision; `update`, after the pass, is the same work in every step:
  ///
  ///     module.begin_step({.lr = 1e-3});
  ///     if (first) graph = Device::capture(module.stream(), [&] { compute(module.train()); module.update(); });
  ///     graph.launch(module.stream());
  ///     module.end_step();
  ///
  /// Queue one step before the capture. Ranks capture and launch together, and no other pass that trains may come in
  /// between. A step that is launched cannot be forfeited.
  /// @{
  void begin_step(const device::StepInputs& inputs) { optimizer_.control().begin(inputs); }
  void update() {
    detail::require_gradients(module_.progress());
    optimizer_.update(loss_);
    statistics_.merge();
    module_.progress() = {};
  }
  void end_step() { optimizer_.control().end(); }
  /// @}
  /// The decision of the last step, or of the one before it. Waits for the device.
  const device::StepDecision& result(int behind = 0) { return optimizer_.control().decision(behind); }
  /// This rank's sum of losses [1], where the device reads it; where a step is cut into pieces, one for each
  /// micro-batch, 0 where the rank has no piece.
  Tensor<double> loss() { return loss_; }

  /// A statistic's values, where the device reads them: whole on this rank, and merged with the other ranks' by each
  /// step. Throws InputError for an unknown name.
  Tensor<float> statistic(std::string_view name) { return statistics_.values(name); }

  /// The parts that it consists of, the compute stream, and this rank's parts of weights and gradients at rest.
  /// @{
  Module& module() { return module_; }
  Optimizer& optimizer() { return optimizer_; }
  Statistics<Module>& statistics() { return statistics_; }
  typename Device::Stream& stream() { return module_.stream(); }
  const std::vector<typename Module::ParameterShard>& shards() const { return module_.shards(); }
  /// @}
  /// Bytes of this rank as planned, and as held: equal once a step has been made.
  /// @{
  const PlannedBytes& planned() const { return planned_; }
  PlannedBytes held() { return detail::held_by(module_); }
  /// @}
  /// Calls and bytes of collectives, by axis and kind; see ShardedModule::traffic. Those of a graph that the caller
  /// captures are counted once, at the capture.
  comm::MeshTraffic traffic() { return module_.traffic(); }

 private:
  static ModuleSettings settings_of(const std::vector<Unit>& units, const Strategy& strategy, int ranks,
                                    const Settings& settings, std::int64_t arena) {
    ModuleSettings made{.passes = {.unit_options = settings.unit_options,
                                   .orders = settings.orders.empty() ? detail::chain_of(units) : settings.orders,
                                   .micro_batches = settings.micro_batches,
                                   .fixed_slots = settings.fixed_slots},
                        .threads = settings.threads,
                        .arena_bytes = arena,
                        .step_work = optim::step_work(settings.optimizer),
                        .lend = settings.lend};
    detail::set_pieces(made.passes, sharding::facts_of(strategy).pieces, ranks, settings.statistics);
    return made;
  }
  /// An error of one rank is thrown on all: else they would wait for it.
  static PlannedBytes agreed_plan(Comm& communicator, const std::vector<Unit>& units, const Strategy& strategy,
                                  const Settings& settings) {
    const PlannedBytes planned = comm::together(communicator, "plan", [&] {
      const PlannedBytes mine = plan(communicator.size(), communicator.rank(), units, strategy, settings);
      detail::require_budget(mine, settings.budget, communicator.rank());
      return mine;
    });
    OptimizerT constants = settings.optimizer;
    detail::require_same_settings(communicator, constants.name(), constants, settings.rules, settings.statistics);
    return planned;
  }
  PlannedBytes planned_;
  Module module_;
  Optimizer optimizer_;
  Statistics<Module> statistics_;
  device::Block<Device> loss_block_;
  Tensor<double> loss_;  // [1], or [micro_batches] where a step is cut into pieces
  device::HostCopy<Device, double> losses_on_host_;
};

}  // namespace fsdp

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sharded parameters, gradients and optimizer state for user-defined tensors, forward and backward.
///
///     fsdp::Sharded<Stack> module(communicator, {{"encoder", {{"w", {64, 128}}, {"b", {64}}}}});
///     module.initialize(seed);
///     auto pass = module.train();
///     { auto use = pass.forward(0); encode(use.weight("w"), use.weight("b")); }
///     { auto use = pass.backward(0); encode_gradient(use.weight("w"), use.gradient("w"), use.gradient("b")); }
///     pass.finish();
///     module.step(loss, {.lr = 1e-3});
///
/// One object belongs to one rank, and calls on it come from one thread at a time. It does not print, exit the process,
/// read environment variables or change thread settings permanently. Errors are exceptions.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/comm/monitor.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/module/module_plan.hpp>
#include <tessera/fsdp/module/pass.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>
#include <tessera/fsdp/optim/statistics.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sharding/problem.hpp>

namespace fsdp {

/// Settings of a Sharded.
template <class Optimizer = optim::AdamW>
struct ShardedSettings {
  std::vector<Order> orders = {};  ///< orders of passes, selected by index; empty: the chain of all gathered units
  /// Maximum number of micro-batches in a step; `train` may be given fewer. A step has at most 2^20 computations. If a
  /// step is cut into pieces (Reproducible), pieces and ranks determine the number, and this must be 1 or that number.
  int micro_batches = 1;
  Optimizer optimizer = {};       ///< the optimizer with its constants
  device::StepRules rules = {};   ///< gradient clipping, and whether steps with overflowing gradients are skipped
  UnitOptions unit_options = {};  ///< frozen and replicated names, groups of parameters, merging of units
  int threads = 1;                ///< number of threads of the library's own operations: optimizer and copies
  bool fixed_slots = true;        ///< see sharding::Problem
  std::int64_t budget = 0;        ///< maximum number of bytes of this rank; 0 for no limit
  LendMemory lend = {};           ///< see ModuleSettings
  std::vector<Statistic> statistics = {};  ///< small tensors that are not parameters
};

/// Bytes of memory of a rank.
struct PlannedBytes {
  device::BytesByKind bytes{};  ///< bytes by kind; scratch includes the arena
  std::int64_t arena = 0;       ///< bytes of the library's temporary tensors

  /// Returns the sum of the bytes of all kinds.
  std::int64_t sum() const;
  friend bool operator==(const PlannedBytes&, const PlannedBytes&) = default;
};

namespace detail {

/// Throws InputError on all ranks unless all ranks have the same optimizer, `constants` (a line each), rules and
/// statistics.
void require_same_settings(const comm::Ranks& ranks, std::string_view optimizer, std::string_view constants,
                           const device::StepRules& rules, const std::vector<Statistic>& statistics);

/// Throws MemoryError if `planned` exceeds `budget`; a budget of 0 is no limit.
void require_budget(const PlannedBytes& planned, std::int64_t budget, int rank);
/// Returns the chain of all gathered units.
std::vector<Order> chain_of(const std::vector<Unit>& units);
/// Sets the number of micro-batches of passes from the strategy's `pieces`, if it cuts steps into pieces. Throws
/// InputError if there are both pieces and statistics.
void set_pieces(PassPlan& passes, int pieces, int ranks, const std::vector<Statistic>& statistics);
/// Throws LogicError during a pass, since weights are then in use.
void require_no_pass(const PassProgress& progress, const char* what);
/// Throws LogicError unless a training pass has finished since the last step.
void require_gradients(const PassProgress& progress);
/// Throws LogicError unless there is a loss for each piece of the step that this rank computed. A forfeited pass may
/// have fewer losses.
void require_losses(std::size_t losses, ModuleState& module);
/// Returns the number of losses that this rank passes: one for each piece, or one for the whole step.
int own_losses(const ModuleState& module);
/// Returns the number of losses on the device: one for each micro-batch if a step is cut into pieces, else 1.
std::int64_t losses_of(const ModuleState& module);
/// Throws InputError unless a whole tensor has as many elements as the parameter.
void require_elements(const Parameter& parameter, std::size_t given);
/// Throws DivergedError, which reports that step number `step` was stopped.
[[noreturn]] void throw_diverged(std::int64_t step, const device::StepDecision& decision);

/// Return the memory of a step's losses, and the bytes of memory of a module.
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

/// `how`: `extern template` or `template`. src/fsdp/optim/meta_cpu.cpp instantiates the functions for Cpu with the
/// default optimizer.
#define FSDP_PLANNED_BYTES(how, Precision)                                                           \
  how PlannedBytes planned_bytes<PlainMetaStack<device::Cpu, Precision>>(                            \
      comm::Simulated<device::MetaOf<device::Cpu>>&, const std::vector<Unit>&, const PlainSharding&, \
      const ModuleSettings&, const optim::AdamW&, const device::StepRules&, const std::vector<Statistic>&);
FSDP_PLANNED_BYTES(extern template, Fp32)
FSDP_PLANNED_BYTES(extern template, Bf16Mixed)

}  // namespace detail

/// Units of named tensors and their optimizer, sharded over the ranks of a communicator. See the file comment.
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
  /// memory. Weights are undefined until `initialize`, `fill`, `set` or a checkpoint sets them. Collective. Throws
  /// InputError on all ranks if units, orders and strategy do not fit together or differ between ranks, and
  /// MemoryError, before anything is allocated, if a rank would exceed its budget. `communicator` must outlive it.
  Sharded(Comm& communicator, const std::vector<Unit>& units, const Strategy& strategy = {}, Settings settings = {})
      : planned_(agreed_plan(communicator, units, strategy, settings)),
        module_(communicator, units, strategy,
                settings_of(units, strategy, communicator.size(), settings, planned_.arena)),
        optimizer_(module_, settings.optimizer, settings.rules),
        statistics_(module_, settings.statistics),
        loss_block_(detail::loss_block_of(module_)),
        loss_(reinterpret_cast<double*>(loss_block_.data()), {detail::losses_of(module_)}),
        losses_on_host_(detail::losses_of(module_)) {
    statistics_.initialize(0);  // covers weights that are filled, set or loaded instead of initialized
  }

  /// Returns the bytes of memory that rank `rank` of `ranks` would need. Allocates nothing, and needs no communicator.
  static PlannedBytes plan(int ranks, int rank, const std::vector<Unit>& units, const Strategy& strategy = {},
                           const Settings& settings = {}) {
    using Meta = MetaModuleStack<Stack>;
    typename Meta::Comm simulated(comm::simulated_world<Comm>(ranks, rank));  // validates the numbers of ranks
    return detail::planned_bytes<Meta>(simulated, units, described<Stack, Meta>(strategy),
                                       settings_of(units, strategy, ranks, settings, 0), settings.optimizer,
                                       settings.rules, settings.statistics);
  }

  /// Set the weights. `initialize` computes them from seed, name and index. `fill` calls a callback, only for this
  /// rank's ranges. `set` copies this rank's part of a whole tensor. All ranks must pass the same arguments, which is
  /// checked only with Options::checks. The three are then collective and throw InputError on all ranks: for different
  /// seeds or whole tensors before anything is written, and for `fill` if replicas received different values. Throw
  /// InputError for an unknown name or a wrong number of elements, and LogicError during a pass.
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
  /// at a time; see with_full_parameters. Collective. To read and write gradients and states, see with_full_gradients
  /// (tessera/fsdp/module/host_weights.hpp) and optim::with_full_states (tessera/fsdp/optim/sharded_optimizer.hpp).
  void with_full(const std::vector<std::string>& patterns,
                 const std::function<void(const Parameter&, Tensor<const float>)>& f) {
    with_full_parameters(module_, patterns,
                         [&](const Parameter& parameter, Tensor<const float> values) { f(parameter, values); });
  }

  /// Begin a pass; see Pass. A training pass computes all micro-batches of a step (0: as many as planned). An
  /// evaluation pass computes one micro-batch, forward only.
  /// @{
  Pass<Stack> train(int micro_batches = 0, int order = 0) {
    return Pass<Stack>(module_, sharding::Pass::train, order, micro_batches);
  }
  Pass<Stack> evaluate(int order = 0) { return Pass<Stack>(module_, sharding::Pass::evaluate, order); }
  /// @}

  /// Sums losses and squared gradients over ranks, clips, decides whether to skip the step, updates the weights, and
  /// returns the decision, the same on all ranks. `loss`: this rank's loss sum. If a step is cut into pieces, `losses`
  /// has one sum for each piece that this rank computed, in the order of the pieces. `inputs` must be the same on all
  /// ranks. Collective. If a rank forfeited the pass, the step is skipped. Throws LogicError unless a training pass has
  /// finished since the last step, and for a wrong number of losses; InputError for a learning rate that is not finite
  /// or not set; and DivergedError if loss or gradient are not finite: the weights are then unchanged, and training may
  /// continue.
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
  /// The non-blocking form of `step`, which reads the losses in `loss()`. After a loss or gradient that is not finite,
  /// all later steps are skipped (StepDecision::stopped).
  void queue_step(const device::StepInputs& inputs) {
    detail::require_gradients(module_.progress());
    begin_step(inputs);
    update();
    end_step();
  }
  /// `queue_step` in three parts, to capture a pass and its step as one graph. `begin_step` copies the inputs to the
  /// device and `end_step` copies the decision to the host; `update`, after the pass, enqueues the same work in every
  /// step:
  ///
  ///     module.begin_step({.lr = 1e-3});
  ///     if (first) graph = Device::capture(module.stream(), [&] { compute(module.train()); module.update(); });
  ///     graph.launch(module.stream());
  ///     module.end_step();
  ///
  /// Queue one step before the capture. All ranks must capture and launch together, and no other training pass may run
  /// in between. A launched step cannot be forfeited.
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
  /// Returns the decision of the last step (`behind` = 0), or of the step before it (1). Waits for the device.
  const device::StepDecision& result(int behind = 0) { return optimizer_.control().decision(behind); }
  /// Returns this rank's loss sum [1], in memory that the device can read. If a step is cut into pieces, there is one
  /// for each micro-batch, which is 0 if the rank has no piece.
  Tensor<double> loss() { return loss_; }

  /// Returns a statistic's values in memory that the device can read. They are whole on this rank, and each step merges
  /// them with the values of the other ranks. Throws InputError for an unknown name.
  Tensor<float> statistic(std::string_view name) { return statistics_.values(name); }

  /// Return the components of this object, the compute stream, and this rank's shards of weights and gradients.
  /// @{
  Module& module() { return module_; }
  Optimizer& optimizer() { return optimizer_; }
  Statistics<Module>& statistics() { return statistics_; }
  typename Device::Stream& stream() { return module_.stream(); }
  const std::vector<typename Module::ParameterShard>& shards() const { return module_.shards(); }
  /// @}
  /// Return the planned bytes of this rank, and the allocated bytes. They are equal after the first step.
  /// @{
  const PlannedBytes& planned() const { return planned_; }
  PlannedBytes held() { return detail::held_by(module_); }
  /// @}
  /// Returns calls and bytes of collectives, by axis and kind; see ShardedModule::traffic. The collectives of a graph
  /// that the caller captures are counted once, at the capture.
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
  /// Throws an error of one rank on all ranks, which would otherwise wait for that rank.
  static PlannedBytes agreed_plan(Comm& communicator, const std::vector<Unit>& units, const Strategy& strategy,
                                  const Settings& settings) {
    const PlannedBytes planned = comm::together(communicator, "plan", [&] {
      const PlannedBytes mine = plan(communicator.size(), communicator.rank(), units, strategy, settings);
      detail::require_budget(mine, settings.budget, communicator.rank());
      return mine;
    });
    std::string constants;
    OptimizerT::visit(settings.optimizer, [&]<class T>(std::string_view name, const T& value, std::string_view) {
      if constexpr (std::is_floating_point_v<T>)
        constants += message(name, " = ", exact_text(value), "\n");
      else if constexpr (std::is_enum_v<T>)
        constants += message(name, " = ", static_cast<int>(value), "\n");
      else
        constants += message(name, " = ", value, "\n");
    });
    detail::require_same_settings(communicator, settings.optimizer.name(), constants, settings.rules,
                                  settings.statistics);
    return planned;
  }
  PlannedBytes planned_;
  Module module_;
  Optimizer optimizer_;
  Statistics<Module> statistics_;
  device::Block<Device> loss_block_;
  Tensor<double> loss_;  // [1], or [micro_batches] if a step is cut into pieces
  device::HostCopy<Device, double> losses_on_host_;
};

}  // namespace fsdp

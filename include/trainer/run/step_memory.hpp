// SPDX-License-Identifier: Apache-2.0
/// @file
/// The memory of a step: the dry run's request for it, how much a rank may use, budgets that are `auto`, advice for a
/// step that does not fit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/comm/launch/cores.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>
#include <tessera/fsdp/training/step_size.hpp>
#include <tessera/tiling/policies.hpp>
#include <tessera/trainer/flags/flag_values.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// Returns the dry run's request for a step of this size, for the rank that needs the most memory.
template <class Optimizer>
plan::Request most_loaded_request(const StepSize& size, int ranks, const Optimizer& optimizer) {
  return plan_request(size, ranks, plan::most_loaded, Purpose::train, optim::step_work(optimizer));
}
/// The same for the step of these options.
template <class Sharding, class Optimizer>
plan::Request plan_request(const TrainOptions& options, int ranks, const Sharding& sharding,
                           const Optimizer& optimizer) {
  return most_loaded_request(step_size(options, ranks, sharding::facts_of(sharding).pieces), ranks, optimizer);
}

/// Throws InputError if --memory is given, unless a budget is `auto` or the run is a dry run.
void check_memory(const TrainOptions& options, bool has_auto_budget, const std::string& tiling);

/// Returns a rank's share of host memory: nine tenths of the free memory, divided by the ranks on its machine.
inline std::int64_t host_memory_of_rank(int ranks) {
  return plan::available_memory() / 10 * 9 / comm::ranks_on_this_machine(ranks);
}

/// Returns the part of a rank's --memory on a device ("cpu") that a plan with this memory leaves for tensors, with
/// these communicators (plan::usual_cluster). Throws InputError if the rest of the process needs all of it.
std::int64_t given_memory(const TrainOptions& options, std::string_view device, const plan::UsedCommunicators& used);

/// Returns the bytes that one rank's tensors may use in a step with these communicators: given_memory if --memory is
/// given. Otherwise nine tenths of the free memory of its device or machine, divided by the number of ranks that share
/// it; of a rank's own device, without what communicators will take.
template <class Comm>
std::int64_t memory_of_rank(const TrainOptions& options, int ranks, const plan::UsedCommunicators& used) {
  if (options.memory) return given_memory(options, Comm::Device::name, used);
  if constexpr (requires { requires Comm::device_for_each_rank; }) {
    const plan::Cluster usual = plan::usual_cluster(Comm::Device::name);
    return Comm::Device::free_bytes() / 10 * 9 - (usual.runtime(used) - usual.runtime_bytes);
  } else if constexpr (requires { Comm::Device::free_bytes(); }) {
    return Comm::Device::free_bytes() / 10 * 9 / comm::ranks_on_this_machine(ranks);
  } else {
    return host_memory_of_rank(ranks);
  }
}

/// Returns the least `memory` of all ranks. Collective. `what`: its name in errors.
std::int64_t least_memory(const comm::Ranks& ranks, std::int64_t memory, const char* what);

/// Peak bytes of a rank in a step.
struct TakenBytes {
  std::int64_t device = 0;
  std::int64_t host = 0;  ///< bytes of offloaded tensors
};
/// Returns the peak bytes of a plan. `one`: whether device and host share one memory, which then contains all of them.
inline TakenBytes taken_by(const plan::Plan& plan, bool one = false) {
  return {.device = plan.peak_bytes() + (one ? plan.offloaded_bytes : 0), .host = plan.offloaded_bytes};
}

/// The memory properties of a stack's type.
struct StackMemory {
  bool one = false;                 ///< Device::host_memory: offloaded tensors stay in the same memory
  bool offloads_optimizer = false;  ///< the run has --offload optimizer, which advice then includes too
};
template <class Stack>
inline constexpr StackMemory stack_memory = {.one = Stack::Device::host_memory,
                                             .offloads_optimizer = offloads_optimizer_of<typename Stack::Sharding>};

/// Returns "; the whole run takes ... of each rank, and would take ... with --recompute, ...", by dry runs of the same
/// stack. Lists only alternatives that need less memory. `tiling`: the run's tiling; nullptr if it is fixed at compile
/// time. `pieces`: see step_size. `memory`: bytes of the rank's device, for which the least share of inputs in host
/// memory is searched; empty if device and host share one memory, in which case no share is offered.
/// `offloads_optimizer`: see StackMemory. `bytes`: makes a dry run with other options, tiling (nullptr: the run's own)
/// and number of ranks.
std::string memory_advice(
    const TrainOptions& options, const tiling::RunTimeTiling* tiling, int ranks, int pieces,
    std::optional<std::int64_t> memory, bool offloads_optimizer,
    FunctionRef<TakenBytes(const TrainOptions& options, const tiling::RunTimeTiling* tiling, int ranks)> bytes);

/// The memory that a rank's step needs, as plan::needed_bytes counts it.
struct NeededMemory {
  std::int64_t bytes = 0;
  std::int64_t runtime = 0;  ///< part of `bytes` that the process needs in addition to tensors
};

/// Returns the line of --dry-run on whether a step fits into a rank's `memory`. `advice`: if it does not fit.
std::string memory_line(std::int64_t memory, const NeededMemory& needed, const std::string& advice);
/// Returns the error of --dry-run for a step that does not fit into `memory`.
std::string does_not_fit(std::int64_t memory, std::int64_t needed);

/// Throws InputError unless `memory` bytes of host memory suffice for `share` of the block inputs in addition to the
/// rest; the error reports the largest share that would fit. `host`: returns the bytes with a share.
void require_host_memory(double share, std::int64_t memory, FunctionRef<std::int64_t(double share)> host);

/// Returns whether a tiling policy is `budget:auto`, whose bytes are not known yet.
template <class Tiling>
bool asks_for_memory(const Tiling& tiling) {
  if constexpr (std::is_same_v<Tiling, tiling::RunTimeTiling>)
    return tiling.asks_for_memory();
  else
    return false;
}
/// Returns whether a strategy's budget for gathered weights is `auto`, whose bytes are not known yet.
template <class Sharding>
bool weights_ask_for_memory(const Sharding& sharding) {
  return sharding::facts_of(sharding).budget == memory_left;
}

/// Searches for the largest budget whose peak is at most `memory`, to one part in 256. `taken` returns a rank's planned
/// bytes for a tiling and options of blocks; the run's own options are `units`. Returns `memory` if the untiled step
/// fits. Throws InputError if no budget fits; the error reports the smallest peak that was found, and whether a budget
/// fits with --recompute or else, if host memory is separate, with the least share of inputs in host memory.
std::int64_t largest_budget(std::int64_t memory, const UnitOptions& units, StackMemory stack,
                            FunctionRef<TakenBytes(const tiling::RunTimeTiling&, const UnitOptions&)> taken);

/// Returns the bytes of `memory` that a step leaves for gathered weights. `step`: its plan without a budget, with
/// `units`. Throws InputError if the rest of the step exceeds `memory`; the error suggests flags that the step does not
/// use. Whether the weights fit into the returned bytes is checked later, by the plan.
std::int64_t memory_left_for_weights(std::int64_t memory, const plan::Plan& step, const UnitOptions& units,
                                     StackMemory stack);

/// Prints the policy with the budget that was found for `flag` ("--tiling budget:auto"), and the memory per rank.
void print_budget(const char* flag, const std::string& policy, std::int64_t memory);

}  // namespace fsdp::train

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Advice for a run that does not fit into memory: what it would take with other flags, such as --recompute and
/// --offload inputs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/tiling/policies.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// Peak bytes that a step takes of a rank.
struct TakenBytes {
  std::int64_t device = 0;
  std::int64_t host = 0;  ///< of what is offloaded
};
/// Returns those of a plan. `one`: whether the device's memory is the host's, which then holds all of them.
inline TakenBytes taken_by(const plan::Plan& plan, bool one = false) {
  return {.device = plan.peak_bytes() + (one ? plan.offloaded_bytes : 0), .host = plan.offloaded_bytes};
}

/// What the type of a stack says about memory.
struct StackMemory {
  bool one = false;                 ///< Device::host_memory: what is offloaded stays in the same memory
  bool offloads_optimizer = false;  ///< see flags_of
};
template <class Stack>
inline constexpr StackMemory stack_memory = {.one = Stack::Device::host_memory,
                                             .offloads_optimizer = offloads_optimizer_of<typename Stack::Sharding>};

/// Returns the least share of block inputs in host memory, in whole percents, with which a step fits; nothing if it
/// does not fit with all of them. `fits` must hold for every share above one for which it holds.
std::optional<double> least_share(FunctionRef<bool(double share)> fits);
/// Returns the largest share, in whole percents, that fits; 0 if none does. `fits` must hold for every share below one
/// for which it holds.
double largest_share(FunctionRef<bool(double share)> fits);

/// Returns the flags that `other` has and `now` has not: "--recompute --offload inputs:0.25". `optimizer`: whether the
/// run has --offload optimizer, which the flag then names too.
std::string flags_of(const UnitOptions& other, const UnitOptions& now, bool optimizer);

/// Returns "; the whole run takes ... of each rank, and would take ... with --recompute, ...", by dry runs of the same
/// stack. Names only alternatives that take less. `tiling`: the run's tiling; nullptr if it is fixed at compile time.
/// `pieces`: as for check_batch. `memory`: bytes of the rank's device, for which the least share of inputs in host
/// memory is found; nothing: both memories are one, and no share is offered. `offloads_optimizer`: see flags_of.
/// `bytes`: makes a dry run with other options, tiling (nullptr: the run's own) and number of ranks.
std::string memory_advice(
    const TrainOptions& options, const tiling::RunTimeTiling* tiling, int ranks, int pieces,
    std::optional<std::int64_t> memory, bool offloads_optimizer,
    FunctionRef<TakenBytes(const TrainOptions& options, const tiling::RunTimeTiling* tiling, int ranks)> bytes);

/// What a rank's step needs of its memory, as plan::needed_bytes counts it.
struct NeededMemory {
  std::int64_t bytes = 0;
  std::int64_t runtime = 0;  ///< of them, those that the process takes besides tensors
};

/// The line of --dry-run on whether a rank's `memory` holds a step. `advice`: memory_advice for one that it does not
/// hold.
std::string memory_line(std::int64_t memory, const NeededMemory& needed, const std::string& advice);
/// The error of --dry-run for a step that `memory` does not hold.
std::string does_not_fit(std::int64_t memory, std::int64_t needed);

/// Throws InputError unless `memory` bytes of host memory hold what `share` of the block inputs takes beside the rest;
/// the error names the largest share that would do. `host`: the bytes with a share.
void require_host_memory(double share, std::int64_t memory, FunctionRef<std::int64_t(double share)> host);

}  // namespace fsdp::train

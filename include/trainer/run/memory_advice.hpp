// SPDX-License-Identifier: Apache-2.0
/// @file
/// Advice for a run that does not fit into memory: the memory of its step with other flags, such as --recompute and
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
  bool offloads_optimizer = false;  ///< see flags_of
};
template <class Stack>
inline constexpr StackMemory stack_memory = {.one = Stack::Device::host_memory,
                                             .offloads_optimizer = offloads_optimizer_of<typename Stack::Sharding>};

/// Returns the least share of block inputs in host memory, in whole percents, with which a step fits; empty if it does
/// not fit with all inputs there. If `fits` is true for a share, it must be true for all larger ones.
std::optional<double> least_share(FunctionRef<bool(double share)> fits);
/// Returns the largest share, in whole percents, that fits; 0 if none does. If `fits` is true for a share, it must be
/// true for all smaller ones.
double largest_share(FunctionRef<bool(double share)> fits);

/// Returns the flags that `other` has and `now` does not have: "--recompute --offload inputs:0.25". `optimizer`:
/// whether the run has --offload optimizer, which the flag then includes too.
std::string flags_of(const UnitOptions& other, const UnitOptions& now, bool optimizer);

/// Returns "; the whole run takes ... of each rank, and would take ... with --recompute, ...", by dry runs of the same
/// stack. Lists only alternatives that need less memory. `tiling`: the run's tiling; nullptr if it is fixed at compile
/// time. `pieces`: see step_size. `memory`: bytes of the rank's device, for which the least share of inputs in host
/// memory is searched; empty if device and host share one memory, in which case no share is offered.
/// `offloads_optimizer`: see flags_of. `bytes`: makes a dry run with other options, tiling (nullptr: the run's own) and
/// number of ranks.
std::string memory_advice(
    const TrainOptions& options, const tiling::RunTimeTiling* tiling, int ranks, int pieces,
    std::optional<std::int64_t> memory, bool offloads_optimizer,
    FunctionRef<TakenBytes(const TrainOptions& options, const tiling::RunTimeTiling* tiling, int ranks)> bytes);

/// The memory that a rank's step needs, as plan::needed_bytes counts it.
struct NeededMemory {
  std::int64_t bytes = 0;
  std::int64_t runtime = 0;  ///< part of `bytes` that the process needs in addition to tensors
};

/// Returns the line of --dry-run that reports whether a step fits into a rank's `memory`. `advice`: memory_advice for a
/// step that does not fit.
std::string memory_line(std::int64_t memory, const NeededMemory& needed, const std::string& advice);
/// Returns the error of --dry-run for a step that does not fit into `memory`.
std::string does_not_fit(std::int64_t memory, std::int64_t needed);

/// Throws InputError unless `memory` bytes of host memory suffice for `share` of the block inputs in addition to the
/// rest; the error reports the largest share that would fit. `host`: returns the bytes with a share.
void require_host_memory(double share, std::int64_t memory, FunctionRef<std::int64_t(double share)> host);

}  // namespace fsdp::train

// SPDX-License-Identifier: Apache-2.0
/// @file
/// How much recomputation and inputs in host memory (--recompute, --offload inputs) take off a rank's device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

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

}  // namespace fsdp::train

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds budgets that are `auto` by dry runs. `--tiling budget:auto` becomes the largest tiling budget with which a
/// step fits into a rank's memory; `budget=auto` of --sharding becomes the bytes that the rest of a step leaves for
/// gathered weights.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/sharding/schedule_of.hpp>
#include <tessera/tiling/policies.hpp>
#include <tessera/trainer/run/memory_advice.hpp>

namespace fsdp::train {

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
std::int64_t left_for_weights(std::int64_t memory, const plan::Plan& step, const UnitOptions& units, StackMemory stack);

/// Prints the policy with the budget that was found for `flag` ("--tiling budget:auto"), and the memory per rank on
/// which it is based.
void print_budget(const char* flag, const std::string& policy, std::int64_t memory);

}  // namespace fsdp::train

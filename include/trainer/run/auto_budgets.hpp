// SPDX-License-Identifier: Apache-2.0
/// @file
/// Budgets that are `auto`, by dry runs: `--tiling budget:auto` becomes the largest tiling budget with which a step
/// fits into a rank's memory, and `budget=auto` behind --sharding the bytes for gathered weights that the rest of a
/// step leaves of it.
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
/// bytes with a tiling, and with other options for blocks: those of the run are `units`. Returns `memory` if the
/// untiled step fits. Throws InputError if no budget fits; the error names the least bytes that were found, and says
/// whether a budget fits with --recompute, or else, where host memory is apart, with the least share of inputs in it.
std::int64_t largest_budget(std::int64_t memory, const UnitOptions& units, StackMemory stack,
                            FunctionRef<TakenBytes(const tiling::RunTimeTiling&, const UnitOptions&)> taken);

/// Returns what a step leaves of `memory` for gathered weights; `step`: its plan without a budget, with `units`. Throws
/// InputError if the rest of the step takes more than all; the error names the flags that the step has not. Whether
/// weights fit into what is left, the plan finds out.
std::int64_t left_for_weights(std::int64_t memory, const plan::Plan& step, const UnitOptions& units, StackMemory stack);

/// Prints the policy that a flag's budget became ("--tiling budget:auto"), and the memory per rank that it was found
/// for.
void print_budget(const char* flag, const std::string& policy, std::int64_t memory);

}  // namespace fsdp::train

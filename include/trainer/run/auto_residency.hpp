// SPDX-License-Identifier: Apache-2.0
/// @file
/// `budget=auto` behind --sharding: the bytes for gathered weights that the rest of a step leaves of a rank's memory.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/sharding/schedule_of.hpp>
#include <tessera/trainer/run/offload_advice.hpp>

namespace fsdp::train {

/// Returns whether a strategy's budget for gathered weights is `auto`, whose bytes are not known yet.
template <class Sharding>
bool weights_ask_for_memory(const Sharding& sharding) {
  return sharding::facts_of(sharding).budget == memory_left;
}

/// Returns what a step leaves of `memory` for gathered weights; `step`: its plan without a budget, with `units`. Throws
/// InputError if the rest of the step takes more than all; the error names the flags that the step has not. Whether
/// weights fit into what is left, the plan finds out.
std::int64_t left_for_weights(std::int64_t memory, const plan::Plan& step, const UnitOptions& units, StackMemory stack);

/// Prints the strategy with the budget that was found, and the memory per rank that it was found for.
void print_sharding_budget(const std::string& sharding, std::int64_t memory);

}  // namespace fsdp::train

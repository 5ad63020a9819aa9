// SPDX-License-Identifier: Apache-2.0
/// @file
/// `--tiling budget:auto`: finds the largest tiling budget with which a rank's dry run fits into its memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/tiling/policies.hpp>
#include <tessera/trainer/run/offload_advice.hpp>

namespace fsdp::train {

/// Searches for the largest budget whose peak is at most `memory`, to one part in 256. `taken` returns a rank's planned
/// bytes with a tiling, and with other options for blocks: those of the run are `units`. Returns `memory` if the
/// untiled step fits. Throws InputError if no budget fits; the error names the least bytes that were found, and says
/// whether a budget fits with --recompute, or else, where host memory is apart, with the least share of inputs in it.
std::int64_t largest_budget(std::int64_t memory, const UnitOptions& units, StackMemory stack,
                            FunctionRef<TakenBytes(const tiling::RunTimeTiling&, const UnitOptions&)> taken);
/// Returns whether a tiling policy is `budget:auto`, whose bytes are not known yet.
template <class Tiling>
bool asks_for_memory(const Tiling& tiling) {
  if constexpr (std::is_same_v<Tiling, tiling::RunTimeTiling>)
    return tiling.asks_for_memory();
  else
    return false;
}

/// Prints the budget that was found and the memory per rank that it was found for.
void print_budget(const tiling::RunTimeTiling& budget, std::int64_t memory);

}  // namespace fsdp::train

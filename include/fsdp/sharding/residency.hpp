// SPDX-License-Identifier: Apache-2.0
/// @file
/// Residency by budget: how long each group's gathered weights are held, so that a step gathers the fewest bytes while
/// the slots for gathered weights take at most so many.
///
/// A pure function, made before anything is allocated: all ranks choose the same, since all have the same problems.
/// Source: the selective unsharding of DeepCompile (Tanaka et al. 2025), which decides from a profile of a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/rules.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

/// The slots for gathered weights that are to be used.
struct WeightSlots {
  std::int64_t bytes = 0;             ///< most bytes of all of them: Facts::budget
  std::int64_t bytes_per_weight = 1;  ///< of the type that is gathered
};

/// What was chosen, and what it costs a rank.
struct Residency {
  std::vector<Hold> holds;          ///< by group: use, micro_batch or step (Problem::holds); empty: there is no budget
  std::int64_t budget_bytes = 0;    ///< what the slots may take
  std::int64_t slot_bytes = 0;      ///< what they take, over all passes
  std::int64_t gathered_bytes = 0;  ///< what a step gathers
  std::int64_t bound_bytes = 0;     ///< no choice within the budget gathers fewer bytes
  bool exhaustive = false;          ///< no other choice gathers fewer: all were tried, or it attains the bound
};

/// Most groups for which all choices are tried.
inline constexpr std::size_t most_groups_tried = 12;

/// Chooses how long each group is held. `steps`: the passes whose gathers are counted, each once; `others`: passes that
/// use the same slots. A choice fits if the placed slots of all passes (slots.hpp), each as large as its largest
/// holder, are within the budget. `schedule_of` makes the schedule of a problem, which says in Problem::holds how long
/// groups are held; how often it gathers a group must depend on the hold of that group alone.
///
/// Up to most_groups_tried groups the result is the best of all choices. Beyond, groups are held for longer one after
/// the other, those first that save the most gathered bytes for each byte held, as long as they fit: from nothing held,
/// and from all held for a micro-batch or the step where that fits, so that the result never gathers more than one of
/// these. Throws InputError if nothing fits.
Residency choose_residency(FunctionRef<Schedule(const Problem&)> schedule_of, std::span<const Problem> steps,
                           std::span<const Problem> others, const WeightSlots& slots);

}  // namespace fsdp::sharding

// Compiled into the library.

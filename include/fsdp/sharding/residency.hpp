// SPDX-License-Identifier: Apache-2.0
/// @file
/// Residency by budget: chooses how long each group stays gathered, so that a step gathers the fewest bytes while the
/// slots for gathered weights stay within a number of bytes.
///
/// This is a pure function, called before anything is allocated: all ranks choose the same, since all have the same
/// problems. Source: the selective unsharding of DeepCompile (Tanaka et al. 2025), which decides from a profile of a
/// step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/rules.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

/// The budget for the slots for gathered weights.
struct WeightSlots {
  std::int64_t bytes = 0;             ///< upper bound for the bytes of all slots: Facts::budget
  std::int64_t bytes_per_weight = 1;  ///< bytes per element of the gathered type
};

/// The chosen hold of each group, and its cost on one rank.
struct Residency {
  /// By group: use, micro_batch or step (Problem::holds); empty if there is no budget.
  std::vector<Hold> holds;
  std::int64_t budget_bytes = 0;    ///< upper bound for the bytes of the slots
  std::int64_t slot_bytes = 0;      ///< bytes of the slots, over all passes
  std::int64_t gathered_bytes = 0;  ///< bytes that a step gathers
  std::int64_t bound_bytes = 0;     ///< lower bound: no choice within the budget gathers fewer bytes
  bool exhaustive = false;          ///< the choice is optimal: all choices were tried, or it attains the bound
};

/// Maximum number of groups for which all choices are tried.
inline constexpr std::size_t most_groups_tried = 12;

/// Chooses how long each group stays gathered. `steps`: the passes whose gathers are counted, each once; `others`:
/// other passes that use the same slots. A choice fits if the placed slots of all passes (slots.hpp), each as large as
/// its largest holder, are within the budget. `schedule_of` makes the schedule of a problem, whose Problem::holds
/// specifies how long groups stay gathered; the number of times that it gathers a group must depend only on the hold of
/// that group.
///
/// Up to most_groups_tried groups the result is the best of all choices. For more groups the search is greedy: it
/// extends the holds one by one, in the order of the gathered bytes saved per byte held, as long as the choice fits. It
/// starts from single uses, and from holds of a micro-batch or of the step for all groups if that fits, so that the
/// result never gathers more than any of these. Throws InputError if nothing fits.
Residency choose_residency(FunctionRef<Schedule(const Problem&)> schedule_of, std::span<const Problem> steps,
                           std::span<const Problem> others, const WeightSlots& slots);

}  // namespace fsdp::sharding

// Compiled into the library.

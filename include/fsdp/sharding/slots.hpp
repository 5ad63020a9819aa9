// SPDX-License-Identifier: Apache-2.0
/// @file
/// Slots: fixed buffers that gathered weights and unit gradients reuse in turn, to which a schedule refers by number;
/// and how long each group stays gathered so that its slots stay within a budget.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

/// Returns the list with the missing tasks and slot numbers added. If the list neither opens nor closes gradients, both
/// tasks are added. If it has no exchanges and units have stages, each exchange is added directly after the stage that
/// produces its data. If it moves no inputs and the problem offloads some, these tasks are added: an input is sent as
/// soon as it is computed, and fetched as soon as a buffer is free, so that its copy overlaps the preceding backward. A
/// gradient is opened before its first write. It is closed before the next computation that writes gradients or, if
/// collectives overlap computation, before the one after that. With overlap, gradients that are reduced in place are
/// closed only when they are written again or at the end. A task without a slot number gets the lowest free number that
/// no task of the list specifies. With Problem::fixed_slots, it gets the lowest number that no other group holds during
/// any hold of this group. A group that is used in place in its buffers at rest gets no slot.
Schedule assign_slots(const Schedule& schedule, const Problem& problem);

/// The number of bytes of each slot.
struct SlotSizes {
  std::vector<std::int64_t> weights;    ///< sizes of the slots for gathered weights
  std::vector<std::int64_t> gradients;  ///< sizes of the slots for gradients
  friend bool operator==(const SlotSizes&, const SlotSizes&) = default;
};

/// Returns the sizes of the slots that a placed list uses: each is as large as its largest holder.
SlotSizes slot_sizes(const Schedule& placed, const Problem& problem);

/// Returns the larger of the two sizes for each slot.
SlotSizes largest(SlotSizes a, const SlotSizes& b);

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

/// Chooses how long each group stays gathered, so that a step gathers the fewest bytes. This is a pure function, called
/// before anything is allocated: all ranks choose the same, since all have the same problems. Source: the selective
/// unsharding of DeepCompile (Tanaka et al. 2025), which decides from a profile of a step. Only groups with Hold::use
/// have a choice. `budget`: upper bound for the bytes of all slots (Facts::budget). `steps`: the passes whose
/// gathers are counted, each once; `others`: other passes that use the same slots. A choice fits if the placed slots of
/// all passes (slots.hpp), each as large as its largest holder, are within the budget. `schedule_of` makes the schedule
/// of a problem, whose Problem::holds specifies how long groups stay gathered; the number of times that it gathers a
/// group must depend only on the hold of that group.
///
/// Up to most_groups_tried groups the result is the best of all choices. For more groups the search is greedy: it
/// extends the holds one by one, in the order of the gathered bytes saved per byte held, as long as the choice fits. It
/// starts from single uses, and from holds of a micro-batch or of the step for all groups if that fits, so that the
/// result never gathers more than any of these. Throws InputError if nothing fits, with a budget that would do: for up
/// to most_groups_tried groups the least one.
Residency choose_residency(FunctionRef<Schedule(const Problem&)> schedule_of, std::span<const Problem> steps,
                           std::span<const Problem> others, std::int64_t budget);

}  // namespace fsdp::sharding

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Slots: fixed buffers that gathered weights and unit gradients reuse in turn. A schedule refers to them by number.
#pragma once

#include <cstdint>
#include <vector>

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

/// The number of elements of each slot.
struct SlotSizes {
  std::vector<std::int64_t> weights;    ///< sizes of the slots for gathered weights
  std::vector<std::int64_t> gradients;  ///< sizes of the slots for gradients
  friend bool operator==(const SlotSizes&, const SlotSizes&) = default;
};

/// Returns the sizes of the slots that a placed list uses: each is as large as its largest holder.
SlotSizes slot_sizes(const Schedule& placed, const Problem& problem);

/// Returns the larger of the two sizes for each slot.
SlotSizes largest(SlotSizes a, const SlotSizes& b);

}  // namespace fsdp::sharding

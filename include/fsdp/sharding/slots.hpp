// SPDX-License-Identifier: Apache-2.0
/// @file
/// Slots: fixed buffers that gathered weights and unit gradients use in turn. A schedule names them by number.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

/// Returns the list with the missing tasks and numbers of slots filled in. If the list neither opens nor closes
/// gradients, both are added. If it exchanges nothing and units have stages, each exchange is added right
/// behind the stage that makes what it moves. If it moves no inputs and the problem offloads some, these tasks are
/// added: an input is sent once it is made, and fetched once a buffer is free, so that its copy runs beside the
/// backward before. A gradient is opened before its first write. It is closed before the next computation that writes
/// gradients or, if collectives overlap computation, before the one after that. With overlap, gradients that are
/// reduced in place are closed only when they are written again or at the end. A task without a slot number gets the
/// lowest free number that no task of the list names or, with Problem::fixed_slots, the lowest one that no group holds
/// at any time at which this group holds a slot. A group that is used in its buffers at rest gets none.
Schedule assign_slots(const Schedule& schedule, const Problem& problem);

/// Elements of each slot.
struct SlotSizes {
  std::vector<std::int64_t> weights;    ///< of slots for gathered weights
  std::vector<std::int64_t> gradients;  ///< of slots for gradients
  friend bool operator==(const SlotSizes&, const SlotSizes&) = default;
};

/// Returns the sizes of the slots that a placed list uses: each is as large as its largest holder.
SlotSizes slot_sizes(const Schedule& placed, const Problem& problem);

/// Returns, slot by slot, the larger of the two sizes.
SlotSizes largest(SlotSizes a, const SlotSizes& b);

}  // namespace fsdp::sharding

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Slots: the fixed buffers that gathered weights and unit gradients take turns in, as numbers in a schedule.
#pragma once

#include <cstdint>
#include <vector>

#include <fsdp/sharding/problem.hpp>
#include <fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

/// The list with what it leaves open about slots. A list that neither opens nor closes a gradient gets both: opened
/// before the first write; closed before the next computation that writes gradients or, where collectives run beside
/// computation, before the one after that. Gradients that are reduced in place are then closed when they are written
/// again or at the end. Tasks without a slot number get the lowest that is free and that no task of the list names; a
/// group whose buffers at rest serve gets none.
Schedule place(const Schedule& schedule, const Problem& problem);

/// Elements of each slot.
struct SlotSizes {
  std::vector<std::int64_t> weights, gradients;
  friend bool operator==(const SlotSizes&, const SlotSizes&) = default;
};

/// The slots that a placed list uses, each as large as its largest holder.
SlotSizes slot_sizes(const Schedule& placed, const Problem& problem);

/// Slots that serve both.
SlotSizes largest(SlotSizes a, const SlotSizes& b);

}  // namespace fsdp::sharding

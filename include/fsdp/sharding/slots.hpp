// SPDX-License-Identifier: Apache-2.0
/// @file
/// Slots: the fixed buffers that gathered weights and unit gradients take turns in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <fsdp/core/error.hpp>
#include <fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

/// Who is where, from a walk through a schedule: a taker gets the lowest free slot, each slot is as large as its
/// largest taker.
struct Slots {
  std::vector<std::int64_t> sizes;  ///< elements of each slot
  std::vector<int> holder;          ///< group in each slot now, or -1

  /// Gives `group` a slot of at least `elements`; returns its index.
  int take(int group, std::int64_t elements) {
    auto free = std::find(holder.begin(), holder.end(), -1);
    if (free == holder.end()) {
      sizes.push_back(0);
      free = holder.insert(holder.end(), -1);
    }
    const auto slot = static_cast<std::size_t>(free - holder.begin());
    *free = group;
    sizes[slot] = std::max(sizes[slot], elements);
    return static_cast<int>(slot);
  }
  bool holds(int group) const { return std::find(holder.begin(), holder.end(), group) != holder.end(); }
  /// Frees the slot that `group` holds; returns its index.
  int give_back(int group) {
    const auto place = std::find(holder.begin(), holder.end(), group);
    require(place != holder.end(), "group ", group, " holds no slot to give back");
    *place = -1;
    return static_cast<int>(place - holder.begin());
  }
};

constexpr bool takes_weight_slot(Action action) {
  return action == Action::gather || action == Action::gather_in_group;
}

/// Slots for gathered weights of a schedule; `elements` of each group.
inline Slots weight_slots(const Schedule& schedule, std::span<const std::int64_t> elements) {
  Slots slots;
  for (const Event& event : schedule) {
    if (takes_weight_slot(event.action)) slots.take(event.index, elements[static_cast<std::size_t>(event.index)]);
    if (event.action == Action::release) slots.give_back(event.index);
  }
  return slots;
}

/// Slots for gradients on their way to a reduction that is done before the next backward begins.
/// Frozen groups have none: their `elements` are not read.
inline Slots gradient_slots(const Schedule& schedule, const std::vector<UnitUse>& units,
                            const std::vector<GroupRules>& groups, std::span<const std::int64_t> elements) {
  Slots slots;
  for (const Event& event : schedule) {
    if (event.action == Action::loss || event.action == Action::backward)
      for (int group : units[static_cast<std::size_t>(event.index)].groups)
        if (groups[static_cast<std::size_t>(group)].trainable && !slots.holds(group))
          slots.take(group, elements[static_cast<std::size_t>(group)]);
    if (event.action == Action::reduce) slots.give_back(event.index);
  }
  return slots;
}

}  // namespace fsdp::sharding

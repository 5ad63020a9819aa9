// SPDX-License-Identifier: Apache-2.0
/// @file
/// Slots: the fixed buffers that gathered weights and unit gradients take turns in.
#pragma once

#include <algorithm>
#include <cstddef>
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

/// Slots for gradients on their way to a reduction. A slot is given back when its reduction is done: before the next
/// computation begins or, where reductions run beside computation, before the one after that. Gradients that are
/// reduced in place hold nothing that others wait for: there they run to the end.
class GradientSlots {
 public:
  explicit GradientSlots(bool overlap = false) : overlap_(overlap) {}

  std::vector<std::int64_t> sizes() const { return slots_.sizes; }
  bool holds(int group) const { return slots_.holds(group); }
  int take(int group, std::int64_t elements) { return slots_.take(group, elements); }
  /// Calls f(group) for each whose reduction was started and may be under way.
  template <class F>
  void for_each_reducing(F f) const {
    for (const Reduction& reduction : reductions_) f(reduction.group);
  }

  /// A computation that writes gradients of `groups` is about to begin: calls done(group, slot) for every reduction
  /// whose slot others may take from here on, once it is over.
  template <class Done>
  void begin_computation(const std::vector<int>& groups, Done done) {
    give_back(done, [&](const Reduction& reduction) {
      const bool in_the_way = std::find(groups.begin(), groups.end(), reduction.group) != groups.end();
      return in_the_way || !overlap_ || (reduction.before_last && !reduction.in_place);
    });
    for (Reduction& reduction : reductions_) reduction.before_last = true;
  }
  void reduce(int group, bool in_place) { reductions_.push_back({.group = group, .in_place = in_place}); }
  /// The same for all reductions at the end.
  template <class Done>
  void finish(Done done) {
    give_back(done, [](const Reduction&) { return true; });
  }

 private:
  struct Reduction {
    int group = 0;
    bool in_place = false;
    bool before_last = false;  ///< started before the last computation began
  };

  template <class Done, class Over>
  void give_back(Done done, Over over) {
    for (const Reduction& reduction : reductions_)
      if (over(reduction)) done(reduction.group, slots_.give_back(reduction.group));
    std::erase_if(reductions_, over);
  }

  bool overlap_;
  Slots slots_;
  std::vector<Reduction> reductions_;  ///< in the order they were started
};

/// Gradient slots of a schedule; `elements` are 0 of groups that are reduced in place. Frozen groups have none.
inline GradientSlots gradient_slots(const Schedule& schedule, const std::vector<UnitUse>& units,
                                    const std::vector<GroupRules>& groups, std::span<const std::int64_t> elements,
                                    bool overlap) {
  const auto nothing = [](int, int) {};
  GradientSlots slots(overlap);
  for (const Event& event : schedule) {
    if (event.action == Action::loss || event.action == Action::backward) {
      const std::vector<int>& used = units[static_cast<std::size_t>(event.index)].groups;
      slots.begin_computation(used, nothing);
      for (int group : used)
        if (groups[static_cast<std::size_t>(group)].trainable && !slots.holds(group))
          slots.take(group, elements[static_cast<std::size_t>(group)]);
    }
    if (event.action == Action::reduce) slots.reduce(event.index, elements[static_cast<std::size_t>(event.index)] == 0);
  }
  return slots;
}

}  // namespace fsdp::sharding

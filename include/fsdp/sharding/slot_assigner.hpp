// SPDX-License-Identifier: Apache-2.0
/// @file
/// Assigns the slots of a schedule, as slots.hpp describes.
///
/// This header is long, since it is constexpr. Code that assigns slots at run time only includes slots.hpp instead.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include <tessera/fsdp/sharding/actions.hpp>
#include <tessera/fsdp/sharding/input_holders.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

namespace detail {

/// Adds the tasks that open and close gradients.
class GradientTasks {
 public:
  constexpr explicit GradientTasks(const Problem& problem) : problem_(problem), open_(problem.groups.size(), 0) {}

  constexpr Schedule run(const Schedule& schedule) {
    list_.reserve(2 * schedule.size());
    for (const Task& task : each(schedule)) {
      if (problem_.writes_gradients(task) && problem_.begins(task)) begin_computation(task);
      list_.push_back(task);
      if (task.action == Action::reduce)
        reductions_.push_back({.group = task.index, .in_place = problem_.group(task.index).slot_elements == 0});
    }
    for (Reduction& reduction : reductions_) reduction.over = true;
    if (!schedule.empty()) close(schedule.back().micro_batch);
    return std::move(list_);
  }

 private:
  struct Reduction {
    int group = 0;
    bool in_place = false;
    bool before_last = false;  ///< it was started before the last computation began
    bool over = false;         ///< it must be complete at this point
  };

  constexpr char& open(int group) { return open_[static_cast<std::size_t>(group)]; }

  constexpr void begin_computation(const Task& task) {
    const std::vector<int>& groups = problem_.unit(task.index).groups;
    for (Reduction& reduction : each(reductions_))
      reduction.over = !problem_.overlap || (reduction.before_last && !reduction.in_place) ||
                       std::find(groups.begin(), groups.end(), reduction.group) != groups.end();
    close(task.micro_batch);
    for (Reduction& reduction : each(reductions_)) reduction.before_last = true;
    for (const int group : each(groups)) {
      if (open(group) != 0 || !problem_.group(group).trainable) continue;
      open(group) = 1;
      list_.push_back({.action = Action::open_gradient, .index = group, .micro_batch = task.micro_batch});
    }
  }

  /// Closes the gradients whose reduction must be complete here.
  constexpr void close(int micro_batch) {
    for (const Reduction& reduction : each(reductions_)) {
      if (!reduction.over) continue;
      open(reduction.group) = 0;
      list_.push_back({.action = Action::close_gradient, .index = reduction.group, .micro_batch = micro_batch});
    }
    std::erase_if(reductions_, [](const Reduction& reduction) { return reduction.over; });
  }

  const Problem& problem_;
  std::vector<char> open_;             ///< by group
  std::vector<Reduction> reductions_;  ///< in the order in which they were started
  Schedule list_;
};

/// Adds the exchanges of units that have stages, unless the list already has exchanges. Each is added directly after
/// the stage that produces its data.
constexpr Schedule with_exchanges(Schedule schedule, const Problem& problem) {
  bool staged = false;
  for (const UnitUse& unit : each(problem.units)) staged = staged || unit.stages.parts > 0;
  if (!staged || has_any(schedule, exchanges)) return schedule;
  Schedule list;
  for (const Task& task : schedule) {
    list.push_back(task);
    if (!computes(task.action)) continue;
    const std::vector<Stage> stages = stages_of(problem.unit(task.index).stages);
    for (int next = task.stage + 1; next < static_cast<int>(stages.size()); ++next) {
      if (!exchanges(stages[static_cast<std::size_t>(next)].step)) break;
      list.push_back({.action = Action::exchange, .index = task.index, .micro_batch = task.micro_batch, .stage = next});
    }
  }
  return list;
}

/// Adds the tasks that send and fetch offloaded inputs, unless the list already has some, and assigns their buffers.
class InputTasks {
 public:
  constexpr InputTasks(Schedule schedule, const Problem& problem)
      : schedule_(std::move(schedule)),
        problem_(problem),
        holders_(problem),
        adds_(!has_any(schedule_, copies_input)) {}

  constexpr Schedule run() {
    if (!holders_.any()) return std::move(schedule_);
    list_.reserve(2 * schedule_.size());
    const Schedule order = computations(problem_);
    for (std::size_t next = 0; const Task& task : schedule_) {
      list_.push_back(task);
      place(list_.back());
      if (!computes(task.action)) continue;
      holders_.compute(task);
      if (!adds_) continue;
      if (++next < order.size() && order[next].action == Action::forward && problem_.offloads(order[next].index) &&
          problem_.begins(order[next]))
        add(Action::send_input, order[next]);
      if (task.action == Action::loss) unfetched_ = task.index;
      if (task.action != Action::forward) fetch(task);
    }
    return std::move(list_);
  }

 private:
  constexpr void add(Action action, const Task& of) {
    list_.push_back({.action = action, .index = of.index, .micro_batch = of.micro_batch});
    place(list_.back());
  }
  /// Adds fetches of the inputs that are needed next, as long as a buffer is free.
  constexpr void fetch(const Task& after) {
    while (unfetched_ > 0 && holders_.free() >= 0)
      if (problem_.offloads(--unfetched_))
        add(Action::fetch_input, {.index = unfetched_, .micro_batch = after.micro_batch});
  }
  constexpr void place(Task& task) {
    if (!copies_input(task.action)) return;
    const bool takes = facts_of(task.action).takes_slot;
    if (task.slot < 0) task.slot = takes ? std::max(holders_.free(), 0) : holders_.in_forward(task.index);
    if (takes && task.slot < input_buffers) holders_.take(task.slot, task.index);
  }

  Schedule schedule_;
  const Problem& problem_;
  InputHolders holders_;
  bool adds_;
  int unfetched_ = 0;  ///< in backward: units from this index on have their input on the device
  Schedule list_;
};

/// The tasks [first, last] of a list, by number, during which a group holds a slot.
struct Held {
  int first = 0;
  int last = 0;
};

/// Assigns the slots of one kind, task by task.
class SlotNumbers {
 public:
  constexpr SlotNumbers(const Schedule& schedule, const Problem& problem, SlotKind kind)
      : problem_(problem), kind_(kind), slot_of_(problem.groups.size(), -1) {
    for (const Task& task : each(schedule))
      if (has_slot(task.action, kind) && task.slot >= 0) at(task.slot).named = true;
    if (problem.fixed_slots) fix(schedule);
  }

  /// Assigns a slot to a task of this kind; does not change other tasks.
  constexpr void number(Task& task) {
    if (!takes_part(task)) return;
    int& held = slot_of_[static_cast<std::size_t>(task.index)];
    if (facts_of(task.action).frees_slot) {
      if (task.slot < 0) task.slot = held;
      if (held >= 0) at(held).taken = false;
      held = -1;
    } else {
      if (task.slot < 0) task.slot = fixed_.empty() ? lowest() : fixed_[static_cast<std::size_t>(task.index)];
      held = task.slot;
      at(held).taken = true;
    }
  }

 private:
  struct Slot {
    bool named = false;  ///< the list itself assigns this slot number
    bool taken = false;
  };

  constexpr Slot& at(int slot) {
    const auto index = static_cast<std::size_t>(slot);
    if (index >= slots_.size()) slots_.resize(index + 1);
    return slots_[index];
  }
  constexpr bool takes_part(const Task& task) const {
    if (!has_slot(task.action, kind_)) return false;
    const GroupFacts& group = problem_.group(task.index);
    return (kind_ == SlotKind::weights ? group.weight_slot_bytes() : group.gradient_slot_bytes()) > 0;
  }

  constexpr int lowest() {
    int slot = 0;
    while (at(slot).named || at(slot).taken) ++slot;
    return slot;
  }

  /// Assigns to every group the lowest slot that is free during all of the group's holds. Groups are processed in the
  /// order of their first use.
  void fix(const Schedule& schedule) {
    std::vector<int> order;
    std::vector<std::vector<Held>> held(problem_.groups.size());
    std::vector<std::map<int, int>> holders;  // for each slot, a map from the first task of each hold to its last task
    for (int number = 0; const Task& task : schedule) {
      if (takes_part(task)) {
        auto& own = held[static_cast<std::size_t>(task.index)];
        if (own.empty()) order.push_back(task.index);
        if (facts_of(task.action).frees_slot && !own.empty())
          own.back().last = number;
        else
          own.push_back({.first = number, .last = static_cast<int>(schedule.size())});
      }
      ++number;
    }
    fixed_.assign(problem_.groups.size(), -1);
    for (const int group : order) {
      const auto& own = held[static_cast<std::size_t>(group)];
      int slot = 0;
      for (;; ++slot) {
        if (static_cast<std::size_t>(slot) == holders.size()) holders.emplace_back();
        if (!at(slot).named && !overlap(holders[static_cast<std::size_t>(slot)], own)) break;
      }
      fixed_[static_cast<std::size_t>(group)] = slot;
      for (const Held& hold : own) holders[static_cast<std::size_t>(slot)].emplace(hold.first, hold.last);
    }
  }
  /// Whether a hold in `own` overlaps one in `holders`; those in `holders` do not overlap each other.
  static bool overlap(const std::map<int, int>& holders, const std::vector<Held>& own) {
    return std::any_of(own.begin(), own.end(), [&](const Held& hold) {
      const auto next = holders.lower_bound(hold.last);
      return next != holders.begin() && std::prev(next)->second > hold.first;
    });
  }

  const Problem& problem_;
  SlotKind kind_;
  std::vector<int> slot_of_;  ///< by group; -1 if the group holds no slot
  std::vector<int> fixed_;    ///< by group; empty unless Problem::fixed_slots
  std::vector<Slot> slots_;
};

}  // namespace detail

/// The constexpr implementation of `assign_slots` (slots.hpp).
constexpr Schedule with_slots(const Schedule& schedule, const Problem& problem) {
  const bool has_gradient_tasks = has_any(schedule, has_gradient_slot);
  Schedule placed = detail::InputTasks(detail::with_exchanges(schedule, problem), problem).run();
  if (!has_gradient_tasks) placed = detail::GradientTasks(problem).run(placed);
  detail::SlotNumbers weights(placed, problem, SlotKind::weights);
  detail::SlotNumbers gradients(placed, problem, SlotKind::gradient);
  for (Task& task : detail::each(placed)) {
    weights.number(task);
    gradients.number(task);
  }
  return placed;
}

}  // namespace fsdp::sharding

// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/slots.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

namespace fsdp::sharding {
namespace {

bool contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// Adds the tasks that open and close gradients.
class GradientTasks {
 public:
  explicit GradientTasks(const Problem& problem) : problem_(problem), open_(problem.groups.size()) {}

  Schedule run(const Schedule& schedule) {
    for (const Task& task : schedule) {
      if (problem_.writes_gradients(task)) begin_computation(task);
      list_.push_back(task);
      if (task.action == Action::reduce)
        reductions_.push_back({.group = task.index, .in_place = problem_.group(task.index).slot_elements == 0});
    }
    if (!schedule.empty()) close(schedule.back().micro_batch, [](const Reduction&) { return true; });
    return std::move(list_);
  }

 private:
  struct Reduction {
    int group = 0;
    bool in_place = false;
    bool before_last = false;  ///< started before the last computation began
  };

  void begin_computation(const Task& task) {
    const std::vector<int>& groups = problem_.unit(task.index).groups;
    close(task.micro_batch, [&](const Reduction& reduction) {
      return contains(groups, reduction.group) || !problem_.overlap || (reduction.before_last && !reduction.in_place);
    });
    for (Reduction& reduction : reductions_) reduction.before_last = true;
    for (const int group : groups) {
      if (open_[static_cast<std::size_t>(group)] || !problem_.group(group).trainable) continue;
      open_[static_cast<std::size_t>(group)] = true;
      list_.push_back({.action = Action::open_gradient, .index = group, .micro_batch = task.micro_batch});
    }
  }

  /// Closes the gradients whose reduction must be complete here.
  template <class Over>
  void close(int micro_batch, Over over) {
    for (const Reduction& reduction : reductions_) {
      if (!over(reduction)) continue;
      open_[static_cast<std::size_t>(reduction.group)] = false;
      list_.push_back({.action = Action::close_gradient, .index = reduction.group, .micro_batch = micro_batch});
    }
    std::erase_if(reductions_, over);
  }

  const Problem& problem_;
  std::vector<bool> open_;             ///< by group
  std::vector<Reduction> reductions_;  ///< in the order they were started
  Schedule list_;
};

/// The tasks [first, last] of a list during which a group holds a slot.
struct Held {
  int first = 0;
  int last = 0;
};

std::int64_t weight_elements(const GroupFacts& group) { return group.weight_slot_elements(); }
std::int64_t gradient_elements(const GroupFacts& group) { return group.slot_elements; }

/// Assigns the slots of one kind, task by task.
class SlotNumbers {
 public:
  SlotNumbers(const Schedule& schedule, const Problem& problem, bool (*has_slot)(Action),
              std::int64_t (*elements)(const GroupFacts&))
      : problem_(problem), has_slot_(has_slot), elements_(elements), slot_of_(problem.groups.size(), -1) {
    for (const Task& task : schedule)
      if (has_slot(task.action) && task.slot >= 0) named_.insert(task.slot);
    if (problem.fixed_slots) fix(schedule);
  }

  /// Assigns a slot to a task of this kind; leaves other tasks alone.
  void number(Task& task) {
    if (!takes_part(task)) return;
    int& held = slot_of_[static_cast<std::size_t>(task.index)];
    if (gives_back(task.action)) {
      if (task.slot < 0) task.slot = held;
      if (held >= 0) taken_.erase(held);
      held = -1;
    } else {
      if (task.slot < 0) task.slot = fixed_.empty() ? lowest() : fixed_[static_cast<std::size_t>(task.index)];
      held = task.slot;
      taken_.insert(held);
    }
  }

 private:
  static bool gives_back(Action action) { return action == Action::release || action == Action::close_gradient; }
  bool takes_part(const Task& task) const {
    return has_slot_(task.action) && elements_(problem_.group(task.index)) > 0;
  }

  int lowest() const {
    int slot = 0;
    while (named_.contains(slot) || taken_.contains(slot)) ++slot;
    return slot;
  }

  /// Gives every group the lowest slot that is free whenever it holds one; groups in the order of their first use.
  void fix(const Schedule& schedule) {
    std::vector<int> order;
    std::vector<std::vector<Held>> held(problem_.groups.size());
    for (int number = 0; const Task& task : schedule) {
      if (takes_part(task)) {
        auto& own = held[static_cast<std::size_t>(task.index)];
        if (own.empty()) order.push_back(task.index);
        if (gives_back(task.action) && !own.empty())
          own.back().last = number;
        else
          own.push_back({.first = number, .last = static_cast<int>(schedule.size())});
      }
      ++number;
    }
    fixed_.assign(problem_.groups.size(), -1);
    std::map<int, std::vector<Held>> holders;  // by slot
    for (const int group : order) {
      const auto& own = held[static_cast<std::size_t>(group)];
      int slot = 0;
      while (named_.contains(slot) || overlap(holders[slot], own)) ++slot;
      fixed_[static_cast<std::size_t>(group)] = slot;
      holders[slot].insert(holders[slot].end(), own.begin(), own.end());
    }
  }
  static bool overlap(const std::vector<Held>& some, const std::vector<Held>& others) {
    return std::any_of(some.begin(), some.end(), [&](const Held& one) {
      return std::any_of(others.begin(), others.end(),
                         [&](const Held& other) { return one.first < other.last && other.first < one.last; });
    });
  }

  const Problem& problem_;
  bool (*has_slot_)(Action);
  std::int64_t (*elements_)(const GroupFacts&);
  std::vector<int> slot_of_;  ///< by group; -1: it holds none
  std::vector<int> fixed_;    ///< by group, if slots are fixed
  std::set<int> named_;       ///< slots that the list itself names
  std::set<int> taken_;
};

void enlarge(std::vector<std::int64_t>& sizes, int slot, std::int64_t elements) {
  if (slot < 0) return;
  const auto index = static_cast<std::size_t>(slot);
  if (index >= sizes.size()) sizes.resize(index + 1);
  sizes[index] = std::max(sizes[index], elements);
}

}  // namespace

Schedule assign_slots(const Schedule& schedule, const Problem& problem) {
  const bool has_gradient_tasks =
      std::any_of(schedule.begin(), schedule.end(), [](const Task& task) { return has_gradient_slot(task.action); });
  Schedule placed = has_gradient_tasks ? schedule : GradientTasks(problem).run(schedule);
  SlotNumbers weights(placed, problem, has_weight_slot, weight_elements);
  SlotNumbers gradients(placed, problem, has_gradient_slot, gradient_elements);
  for (Task& task : placed) {
    weights.number(task);
    gradients.number(task);
  }
  return placed;
}

SlotSizes slot_sizes(const Schedule& placed, const Problem& problem) {
  SlotSizes sizes;
  for (const Task& task : placed) {
    const GroupFacts* const group = computes(task.action) ? nullptr : &problem.group(task.index);
    if (has_weight_slot(task.action)) enlarge(sizes.weights, task.slot, weight_elements(*group));
    if (has_gradient_slot(task.action)) enlarge(sizes.gradients, task.slot, gradient_elements(*group));
  }
  return sizes;
}

SlotSizes largest(SlotSizes a, const SlotSizes& b) {
  const auto merge = [](std::vector<std::int64_t>& into, const std::vector<std::int64_t>& other) {
    for (std::size_t slot = 0; slot < other.size(); ++slot) enlarge(into, static_cast<int>(slot), other[slot]);
  };
  merge(a.weights, b.weights);
  merge(a.gradients, b.gradients);
  return a;
}

}  // namespace fsdp::sharding

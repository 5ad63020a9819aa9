// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/slots.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/slot_assigner.hpp>

namespace fsdp::sharding {
namespace {

void enlarge(std::vector<std::int64_t>& sizes, int slot, std::int64_t bytes) {
  if (slot < 0) return;
  const auto index = static_cast<std::size_t>(slot);
  if (index >= sizes.size()) sizes.resize(index + 1);
  sizes[index] = std::max(sizes[index], bytes);
}

}  // namespace

Schedule assign_slots(const Schedule& schedule, const Problem& problem) { return with_slots(schedule, problem); }

SlotSizes slot_sizes(const Schedule& placed, const Problem& problem) {
  SlotSizes sizes;
  for (const Task& task : placed) {
    const GroupFacts* const group = works_on_unit(task.action) ? nullptr : &problem.group(task.index);
    if (has_weight_slot(task.action)) enlarge(sizes.weights, task.slot, group->weight_slot_bytes());
    if (has_gradient_slot(task.action)) enlarge(sizes.gradients, task.slot, group->gradient_slot_bytes());
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

namespace {

/// A hold of a group, and its cost in the counted passes.
struct HoldOption {
  std::int64_t gathered = 0;    ///< number of gathered bytes
  std::vector<char> live = {};  ///< by computation: 1 if the group's weights are gathered during it
};

/// A transition from one option of a group to a longer one.
struct Increment {
  double saved = 0;  ///< gathered bytes that it saves
  double held = 0;   ///< additional bytes held, summed over computations

  double saved_for_each() const { return held > 0 ? saved / held : std::numeric_limits<double>::infinity(); }
};

/// Returns the bytes that an option holds, summed over computations [first, last).
double held_by(const HoldOption& option, std::int64_t bytes, std::size_t first, std::size_t last) {
  std::int64_t times = 0;
  for (std::size_t k = first; k < last; ++k) times += option.live[k];
  return static_cast<double>(times) * static_cast<double>(bytes);
}

/// Appends the increments of a group, starting at its first option, in descending order of savings per byte held:
/// the upper hull of its options.
void append_increments(std::vector<Increment>& increments, const std::vector<HoldOption>& options,
                       const std::vector<double>& held) {
  const auto increment = [&](std::size_t from, std::size_t to) {
    return Increment{static_cast<double>(options[from].gathered - options[to].gathered), held[to] - held[from]};
  };
  for (std::size_t at = 0; at + 1 < options.size();) {
    std::size_t best = at + 1;
    for (std::size_t to = at + 2; to < options.size(); ++to)
      if (increment(at, to).saved_for_each() >= increment(at, best).saved_for_each()) best = to;
    increments.push_back(increment(at, best));
    at = best;
  }
}

/// Returns the most bytes that can be saved during computations [first, last).
double most_saved(std::int64_t budget, const std::vector<std::int64_t>& bytes,
                  const std::vector<std::vector<HoldOption>>& options, std::size_t first, std::size_t last) {
  double room = static_cast<double>(budget) * static_cast<double>(last - first);
  std::vector<Increment> increments;
  for (std::size_t group = 0; group < options.size(); ++group) {
    std::vector<double> held;
    for (const HoldOption& option : options[group]) held.push_back(held_by(option, bytes[group], first, last));
    room -= held.front();
    append_increments(increments, options[group], held);
  }
  std::ranges::sort(increments, std::ranges::greater(), &Increment::saved_for_each);
  double saved = 0;
  for (const Increment& one : increments) {
    const double part = one.held <= room ? 1 : room > 0 ? room / one.held : 0;
    saved += part * one.saved;
    room -= part * one.held;
  }
  return saved;
}

/// Returns a lower bound, by a fractional knapsack, for the number of gathered bytes if at most `budget` bytes are held
/// during each computation; all sizes are multiples of `unit`. `bytes` and `options` are by group; a group's options
/// are in the order of their holds, and none gathers more than the one before. The bound is the larger of the bound for
/// single computations and the bound for their mean.
std::int64_t least_gathered_within(std::int64_t budget, std::int64_t unit, const std::vector<std::int64_t>& bytes,
                                   const std::vector<std::vector<HoldOption>>& options) {
  std::int64_t without = 0;
  for (const std::vector<HoldOption>& of_group : options) without += of_group.front().gathered;
  const std::size_t computations = options.front().front().live.size();
  double saved = most_saved(budget, bytes, options, 0, computations);
  for (std::size_t k = 0; k < computations; ++k) saved = std::min(saved, most_saved(budget, bytes, options, k, k + 1));
  // The savings are whole units. Before rounding down, a margin larger than the rounding error of the sums is added.
  return without - unit * static_cast<std::int64_t>(std::floor(saved / double(unit) * (1 + 1e-14) + 1e-6));
}

constexpr std::array all_holds{Hold::use, Hold::micro_batch, Hold::step};

/// The hold of each group.
using Choice = std::vector<Hold>;

constexpr std::size_t index_of(Hold hold) { return static_cast<std::size_t>(hold); }

/// Searches for the best choice. All sizes are in bytes.
class Search {
 public:
  Search(FunctionRef<Schedule(const Problem&)> schedule_of, std::span<const Problem> steps,
         std::span<const Problem> others, std::int64_t budget)
      : schedule_of_(schedule_of), problems_(steps.begin(), steps.end()), options_(groups()) {
    const std::int64_t unit =
        std::ranges::min(problems_.front().groups, {}, &GroupFacts::bytes_per_weight).bytes_per_weight;
    budget_ = budget / unit * unit;
    for (const Hold hold : all_holds) observe(hold);
    problems_.insert(problems_.begin(), others.begin(), others.end());
    bound_ = least_gathered_within(budget_, unit, bytes(), options_);
  }

  /// Runs the search. If no choice fits, none is found; `least_slots` is then the smallest total of slots seen.
  void run() {
    // Early exit: a deep model seldom needs the full search, which builds many schedules.
    for (const Hold hold : {Hold::micro_batch, Hold::step}) {
      const Choice all(groups(), hold);
      if (gathered(all) == bound_ && fits(all)) return keep_better(all);
    }
    for (const Hold hold : all_holds) lengthen(Choice(groups(), hold));
    lengthen(least_room(false));
    if (!found()) lengthen(least_room(true));
    std::size_t choices = 0;
    for (std::size_t group = 0; group < groups(); ++group) choices += has_choice(group) ? 1 : 0;
    if (best_gathered_ == bound_ || choices > most_groups_tried) return;
    Choice choice(groups(), Hold::use);
    make_columns();
    exhaustive_ = true;
    try_all(0, choice, gathered(choice));
  }

  bool found() const { return !best_.empty(); }
  std::int64_t least_slots() const { return least_slots_; }

  /// Returns the best choice.
  Residency result() {
    for (std::size_t group = 0; group < groups(); ++group)
      if (const Hold own = problems_.front().groups[group].hold; own != Hold::use) best_[group] = own;
    return {.holds = best_,
            .slot_bytes = slots(best_),
            .gathered_bytes = best_gathered_,
            .bound_bytes = exhaustive_ ? best_gathered_ : bound_,
            .exhaustive = exhaustive_ || best_gathered_ == bound_};
  }

 private:
  std::size_t groups() const { return problems_.front().groups.size(); }
  std::int64_t bytes_of(std::size_t group) const { return problems_.front().groups[group].weight_slot_bytes(); }
  /// Whether the hold of a group makes a difference: it needs slots, and is otherwise released after each use. Only
  /// such groups are counted.
  bool has_choice(std::size_t group) const {
    const GroupFacts& facts = problems_.front().groups[group];
    return bytes_of(group) > 0 && !facts.persistent && facts.hold == Hold::use;
  }
  std::vector<std::int64_t> bytes() const {
    std::vector<std::int64_t> list;
    for (std::size_t group = 0; group < groups(); ++group) list.push_back(bytes_of(group));
    return list;
  }

  /// Adds `hold` to the options of all groups, measured on the schedules of the steps in which all groups have this
  /// hold.
  void observe(Hold hold) {
    std::vector<HoldOption> seen(groups());
    for (Problem problem : problems_) {
      problem.holds.assign(groups(), hold);
      std::vector<char> held(groups(), 0);
      for (const Task& task : schedule_of_(problem)) {
        const auto index = static_cast<std::size_t>(task.index);
        if (has_weight_slot(task.action)) {
          held[index] = facts_of(task.action).takes_slot;
          if (held[index] != 0) seen[index].gathered += bytes_of(index);
        } else if (computes(task.action)) {
          for (std::size_t group = 0; group < groups(); ++group) seen[group].live.push_back(held[group]);
        }
      }
    }
    for (std::size_t group = 0; group < groups(); ++group) options_[group].push_back(std::move(seen[group]));
  }

  std::int64_t gathered(std::size_t group, Hold hold) const { return options_[group][index_of(hold)].gathered; }
  std::int64_t gathered(const Choice& choice) const {
    std::int64_t sum = 0;
    for (std::size_t group = 0; group < groups(); ++group) sum += gathered(group, choice[group]);
    return sum;
  }

  /// Returns the choice of single uses, except that tied groups, or `all`, get a longer hold if the slots then need
  /// less memory: a tied group with a separate slot leaves the other slots to smaller groups.
  Choice least_room(bool all) {
    Choice choice(groups(), Hold::use);
    for (std::size_t group = 0; group < groups(); ++group) {
      const auto has = [&](const UnitUse& unit) {
        return std::ranges::count(unit.groups, static_cast<int>(group)) > 0;
      };
      if (!has_choice(group) || (!all && std::ranges::count_if(problems_.front().units, has) < 2)) continue;
      for (const Hold hold : {Hold::micro_batch, Hold::step}) {
        Choice other = choice;
        other[group] = hold;
        if (slots(other) < slots(choice)) choice = std::move(other);
      }
    }
    return choice;
  }

  /// Returns the number of bytes of the slots of all passes; stops early at a partial number above `enough`.
  std::int64_t slots(const Choice& choice, std::int64_t enough = std::numeric_limits<std::int64_t>::max()) {
    SlotSizes sizes;
    std::int64_t sum = 0;
    for (Problem& problem : problems_) {
      problem.holds = choice;
      sizes = largest(std::move(sizes), slot_sizes(assign_slots(schedule_of_(problem), problem), problem));
      sum = std::accumulate(sizes.weights.begin(), sizes.weights.end(), std::int64_t{0});
      if (sum > enough) break;
    }
    return sum;
  }
  bool fits(const Choice& choice) { return slots(choice, budget_) <= budget_; }

  void keep_better(const Choice& choice) {
    if (gathered(choice) >= best_gathered_) return;
    best_ = choice;
    best_gathered_ = gathered(choice);
  }

  /// Extends the holds of groups one by one, as long as the choice fits. Does nothing if the initial choice does not
  /// fit.
  void lengthen(Choice choice) {
    const std::int64_t needed = slots(choice);
    least_slots_ = std::min(least_slots_, needed);
    if (needed > budget_) return;
    for (const Move& move : moves()) {
      if (gathered(move.group, choice[move.group]) <= gathered(move.group, move.hold)) continue;
      const Hold before = std::exchange(choice[move.group], move.hold);
      if (!fits(choice)) choice[move.group] = before;
    }
    keep_better(choice);
  }

  /// A longer hold of a group, and the number of gathers that it saves: saved gathered bytes per byte of the
  /// group.
  struct Move {
    std::size_t group;
    Hold hold;
    std::int64_t saved_gathers;
  };
  /// Returns all moves, sorted by saved gathers in descending order. Among equal savings larger groups come first,
  /// since small ones may still fit later. Among equal sizes every other group comes first: the groups in between then
  /// alternate in one slot, and none is gathered ahead of its neighbour.
  std::vector<Move> moves() const {
    std::vector<Move> list;
    for (std::size_t group = 0; group < groups(); ++group)
      for (const Hold hold : {Hold::micro_batch, Hold::step})
        if (const std::int64_t saved = gathered(group, Hold::use) - gathered(group, hold); saved > 0)
          list.push_back({group, hold, saved / bytes_of(group)});
    const auto key = [&](const Move& move) {
      return std::tuple(move.saved_gathers, bytes_of(move.group), move.group % 2);
    };
    std::ranges::stable_sort(list, std::ranges::greater(), key);
    return list;
  }

  /// Fills `columns_` and `live_` for the shortest holds. Computations during which the same groups are held under
  /// every option share one column.
  void make_columns() {
    std::vector<std::vector<char>> columns;
    for (std::size_t k = 0; k < options_.front().front().live.size(); ++k) {
      std::vector<char> column;
      for (const std::vector<HoldOption>& options : options_)
        for (const HoldOption& one : options) column.push_back(one.live[k]);
      columns.push_back(std::move(column));
    }
    std::ranges::sort(columns);
    columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
    live_.assign(columns.size(), 0);
    for (std::size_t row = 0; row < all_holds.size() * groups(); ++row) {
      std::vector<std::int64_t>& held = held_.emplace_back();
      for (const std::vector<char>& column : columns)
        held.push_back(column[row] != 0 ? bytes_of(row / all_holds.size()) : 0);
    }
    for (std::size_t group = 0; group < groups(); ++group) add_live(group, Hold::use, 1);
  }
  /// Adds a group's live bytes to `live_`, or subtracts them (`sign`).
  void add_live(std::size_t group, Hold hold, std::int64_t sign) {
    const std::vector<std::int64_t>& held = held_[all_holds.size() * group + index_of(hold)];
    for (std::size_t k = 0; k < live_.size(); ++k) live_[k] += sign * held[k];
  }

  /// Tries all holds of the groups from `group` on, for which `choice` has Hold::use; `sum` is the number of bytes
  /// that `choice` gathers. Prunes choices that cannot be better, and choices whose live weights alone exceed the
  /// budget during a computation, since the slots are at least as large as the live weights. A hold that saves no
  /// gathers may still help, since it changes the slot assignment of other groups; it is tried last.
  void try_all(std::size_t group, Choice& choice, std::int64_t sum) {
    if (best_gathered_ == bound_ || best_possible(group, sum) >= best_gathered_) return;
    if (group == groups()) {
      if (!fits(choice)) return;
      least_slots_ = std::min(least_slots_, slots(choice));
      return keep_better(choice);
    }
    if (!has_choice(group)) return try_all(group + 1, choice, sum);
    std::array holds = all_holds;
    std::ranges::stable_sort(holds, {}, [&](Hold hold) { return gathered(group, hold); });
    add_live(group, Hold::use, -1);
    for (const Hold hold : holds) {
      add_live(group, hold, 1);
      choice[group] = hold;
      if (std::ranges::all_of(live_, [&](std::int64_t live) { return live <= budget_; }))
        try_all(group + 1, choice, sum - gathered(group, Hold::use) + gathered(group, hold));
      add_live(group, hold, -1);
    }
    choice[group] = Hold::use;
    add_live(group, Hold::use, 1);
  }
  std::int64_t best_possible(std::size_t group, std::int64_t sum) const {
    for (; group < groups(); ++group) sum -= gathered(group, Hold::use) - gathered(group, Hold::step);
    return sum;
  }

  FunctionRef<Schedule(const Problem&)> schedule_of_;
  std::int64_t budget_;
  /// Problems of all passes; the counted ones, which are longer, come last.
  std::vector<Problem> problems_;
  std::vector<std::vector<HoldOption>> options_;  ///< by group and hold
  std::int64_t bound_ = 0;
  std::vector<std::vector<std::int64_t>> held_;  // [groups * holds, columns]
  std::vector<std::int64_t> live_;               // [columns]: live bytes of the current choice
  Choice best_;
  std::int64_t best_gathered_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t least_slots_ = std::numeric_limits<std::int64_t>::max();
  bool exhaustive_ = false;
};

}  // namespace

Residency choose_residency(FunctionRef<Schedule(const Problem&)> schedule_of, std::span<const Problem> steps,
                           std::span<const Problem> others, std::int64_t budget) {
  Search search(schedule_of, steps, others, budget);
  search.run();
  if (!search.found()) {
    std::int64_t least = search.least_slots();
    for (bool found = true; found;) {  // other holds may do with less, which only a search within less finds
      Search within(schedule_of, steps, others, least - 1);
      within.run();
      found = within.found();
      least = std::min(least, within.least_slots());
    }
    const bool persistent = std::ranges::any_of(steps.front().groups, &GroupFacts::persistent);
    throw InputError(message("sharding: a budget of ", budget, " bytes for gathered weights is too small; ", least,
                             " would do, or ", persistent ? "let fewer tensors persist, or " : "",
                             "cut the model into smaller units"));
  }
  Residency result = search.result();
  result.budget_bytes = budget;
  return result;
}

}  // namespace fsdp::sharding

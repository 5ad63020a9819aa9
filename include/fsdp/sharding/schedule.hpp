// SPDX-License-Identifier: Apache-2.0
/// @file
/// The schedule of a step as a value: gathers, computations, releases and reductions, in order.
///
/// Strategies give rules, a model gives its units' groups of weights; `make_schedule` derives the list. The executor
/// runs that list and nothing else. Gathering for backward is derived too: a unit whose backward takes no weights does
/// not appear as a user of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace fsdp::sharding {

enum class Action : std::uint8_t {
  gather,    ///< start the all-gather of a group's weights
  forward,   ///< of a unit; waits for its gathers
  loss,      ///< forward and backward of the last unit
  backward,  ///< of a unit
  release,   ///< give a group's gathered weights up
  reduce,    ///< start the reduction of a group's gradients
};

/// `index` is a unit where something is computed, a group of weights elsewhere.
struct Event {
  Action action = Action::forward;
  int index = 0;
  int micro_batch = 0;
  friend constexpr bool operator==(const Event&, const Event&) = default;
};

using Schedule = std::vector<Event>;

/// How long gathered weights are held.
enum class Hold : std::uint8_t {
  use,          ///< from just before to just after each use
  micro_batch,  ///< from the first use in a micro-batch to the last
  step,         ///< from the first use in a step to its end
  always,       ///< every rank has them at rest
};

/// What a strategy decides about a step.
struct Rules {
  Hold hold = Hold::use;
  bool reduce_every_micro_batch = true;  ///< otherwise the partial sums are kept and reduced after the last
  int prefetch_depth = 1;                ///< computations that a gather is issued ahead of its use
};

/// Groups of weights that a unit uses, and whether its backward needs them.
struct UnitUse {
  std::vector<int> groups;
  bool backward_needs_weights = true;
};

enum class Pass : std::uint8_t { train, evaluate };  ///< evaluate: forward only, the loss makes no gradient

namespace detail {

struct Compute {
  Action action;
  int unit;
  int micro_batch;
};

/// Forward through all units, the loss in the last, backward through the others.
constexpr std::vector<Compute> computations(int units, int micro_batches, Pass pass) {
  std::vector<Compute> list;
  for (int m = 0; m < micro_batches; ++m) {
    for (int unit = 0; unit + 1 < units; ++unit) list.push_back({Action::forward, unit, m});
    list.push_back({Action::loss, units - 1, m});
    if (pass == Pass::train)
      for (int unit = units - 2; unit >= 0; --unit) list.push_back({Action::backward, unit, m});
  }
  return list;
}

constexpr bool contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// Computations at whose start a group must be there, as intervals [first, last] during which it is held.
struct Interval {
  int first;
  int last;
};

/// Merges a group's uses into the intervals that the rules ask for.
/// A group with uses in several units (a tied weight) is held through a micro-batch where others are held per use.
/// A use that would be gathered for again at once is one with the use before: that keeps the last block through the
/// head.
constexpr std::vector<Interval> held(const std::vector<int>& uses, const std::vector<Compute>& computes,
                                     const Rules& rules, bool shared) {
  std::vector<Interval> intervals;
  for (int use : uses) {
    bool extend = false;
    if (!intervals.empty()) {
      const bool same_micro_batch = computes[static_cast<std::size_t>(intervals.back().last)].micro_batch ==
                                    computes[static_cast<std::size_t>(use)].micro_batch;
      extend = rules.hold == Hold::step ||
               (same_micro_batch &&
                (shared || rules.hold == Hold::micro_batch || use - rules.prefetch_depth <= intervals.back().last + 1));
    }
    if (extend)
      intervals.back().last = use;
    else
      intervals.push_back({use, use});
  }
  if (rules.hold == Hold::step && !intervals.empty()) intervals.back().last = static_cast<int>(computes.size()) - 1;
  return intervals;
}

/// What happens to one group during a step.
struct Lifetime {
  std::vector<Interval> gathered;
  std::vector<int> gradient_ends;  ///< the last write to its gradient in each micro-batch
  std::size_t issued = 0;          ///< gathers already in the schedule
};

constexpr Lifetime lifetime(int group, const std::vector<UnitUse>& units, const std::vector<Compute>& computes,
                            const Rules& rules, Pass pass) {
  Lifetime life;
  std::vector<int> uses;
  int users = 0;
  for (const UnitUse& unit : units) users += contains(unit.groups, group) ? 1 : 0;
  for (int k = 0; k < static_cast<int>(computes.size()); ++k) {
    const Compute& compute = computes[static_cast<std::size_t>(k)];
    const UnitUse& unit = units[static_cast<std::size_t>(compute.unit)];
    if (!contains(unit.groups, group)) continue;
    if (compute.action != Action::backward || unit.backward_needs_weights) uses.push_back(k);
    if (compute.action == Action::forward || pass == Pass::evaluate) continue;
    auto& ends = life.gradient_ends;
    if (!ends.empty() && computes[static_cast<std::size_t>(ends.back())].micro_batch == compute.micro_batch)
      ends.back() = k;
    else
      ends.push_back(k);
  }
  if (rules.hold != Hold::always) life.gathered = held(uses, computes, rules, users > 1);
  return life;
}

}  // namespace detail

/// The ordered list for one step of `micro_batches`. Unit 0 takes the tokens, the last unit makes the loss.
constexpr Schedule make_schedule(const Rules& rules, const std::vector<UnitUse>& units, int micro_batches,
                                 Pass pass = Pass::train) {
  const auto computes = detail::computations(static_cast<int>(units.size()), micro_batches, pass);
  const int count = static_cast<int>(computes.size());
  int groups = 0;
  for (const UnitUse& unit : units)
    for (int group : unit.groups) groups = std::max(groups, group + 1);
  std::vector<detail::Lifetime> lives;
  for (int group = 0; group < groups; ++group) lives.push_back(detail::lifetime(group, units, computes, rules, pass));

  Schedule schedule;
  for (int k = 0; k < count; ++k) {
    const auto& compute = computes[static_cast<std::size_t>(k)];
    for (int ahead = k; ahead <= std::min(k + rules.prefetch_depth, count - 1); ++ahead) {
      const auto& next = computes[static_cast<std::size_t>(ahead)];
      for (int group : units[static_cast<std::size_t>(next.unit)].groups) {
        detail::Lifetime& life = lives[static_cast<std::size_t>(group)];
        if (life.issued >= life.gathered.size() || life.gathered[life.issued].first != ahead) continue;
        schedule.push_back({Action::gather, group, next.micro_batch});
        ++life.issued;
      }
    }
    schedule.push_back({compute.action, compute.unit, compute.micro_batch});
    for (int group = 0; group < groups; ++group)
      for (const auto& interval : lives[static_cast<std::size_t>(group)].gathered)
        if (interval.last == k) schedule.push_back({Action::release, group, compute.micro_batch});
    if (!rules.reduce_every_micro_batch && compute.micro_batch != micro_batches - 1) continue;
    for (int group = 0; group < groups; ++group)
      if (detail::contains(lives[static_cast<std::size_t>(group)].gradient_ends, k))
        schedule.push_back({Action::reduce, group, compute.micro_batch});
  }
  return schedule;
}

constexpr std::string_view name_of(Action action) {
  switch (action) {
    case Action::gather: return "gather";
    case Action::forward: return "forward";
    case Action::loss: return "loss";
    case Action::backward: return "backward";
    case Action::release: return "release";
    case Action::reduce: return "reduce";
  }
  return "?";
}

}  // namespace fsdp::sharding

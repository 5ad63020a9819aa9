// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a schedule follows from a strategy's rules and a model's units.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <fsdp/core/error.hpp>
#include <fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

/// The lowest unit that has a backward, the first with something to train; the number of units where nothing is
/// trainable.
constexpr int first_backward(const std::vector<UnitUse>& units, const std::vector<GroupRules>& groups) {
  const auto trains = [&](const UnitUse& unit) {
    return std::any_of(unit.groups.begin(), unit.groups.end(),
                       [&](int group) { return groups[static_cast<std::size_t>(group)].trainable; });
  };
  return static_cast<int>(std::find_if(units.begin(), units.end(), trains) - units.begin());
}

namespace detail {

constexpr bool contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

struct Compute {
  Action action;
  int unit;
  int micro_batch;
};

/// Computations at whose start a group must be there, as an interval [first, last] during which it is held.
struct Interval {
  int first;
  int last;
};

/// What happens to one group during a step.
struct Lifetime {
  std::vector<Interval> gathered;
  std::vector<int> gradient_ends;  ///< the last write to its gradient in each micro-batch
  int first_use = -1;
  std::size_t issued = 0;    ///< gathers already in the schedule
  std::size_t released = 0;  ///< releases already in the schedule
  std::size_t ended = 0;     ///< gradient ends already passed
  bool crossed = false;      ///< gathered across already
};

/// Derives a schedule; its state is what the list so far has done.
class Scheduler {
 public:
  constexpr Scheduler(const Rules& rules, const std::vector<UnitUse>& units, const std::vector<GroupRules>& groups,
                      int micro_batches, Pass pass)
      : rules_(rules), units_(units), groups_(groups), micro_batches_(micro_batches), pass_(pass) {
    list_computations();
    check_live_bound();
    for (int group = 0; group < static_cast<int>(groups_.size()); ++group) lives_.push_back(lifetime(group));
  }

  constexpr Schedule run() {
    const int count = static_cast<int>(computes_.size());
    for (int k = 0; k < count; ++k) {
      for (int ahead = k; ahead <= std::min(k + rules_.prefetch_depth, count - 1); ++ahead)
        if (!gather_for(ahead, k)) break;
      const Compute& compute = at(k);
      schedule_.push_back({compute.action, compute.unit, compute.micro_batch});
      release_after(k);
      reduce_after(k);
    }
    return schedule_;
  }

 private:
  constexpr const Compute& at(int k) const { return computes_[static_cast<std::size_t>(k)]; }
  constexpr const GroupRules& rules_of(int group) const { return groups_[static_cast<std::size_t>(group)]; }
  constexpr const std::vector<int>& groups_at(int k) const {
    return units_[static_cast<std::size_t>(at(k).unit)].groups;
  }
  constexpr bool uses_weights(int k) const {
    return at(k).action != Action::backward || units_[static_cast<std::size_t>(at(k).unit)].backward_needs_weights;
  }

  /// Forward through all units, the loss in the last, backward through the others down to the first trainable one.
  constexpr void list_computations() {
    const int units = static_cast<int>(units_.size());
    const int lowest = first_backward(units_, groups_);
    for (int m = 0; m < micro_batches_; ++m) {
      for (int unit = 0; unit + 1 < units; ++unit) computes_.push_back({Action::forward, unit, m});
      computes_.push_back({Action::loss, units - 1, m});
      if (pass_ == Pass::train)
        for (int unit = units - 2; unit >= lowest; --unit) computes_.push_back({Action::backward, unit, m});
    }
  }

  /// Elements that computation `k` needs gathered for this use alone.
  constexpr std::int64_t needed(int k) const {
    std::int64_t sum = 0;
    if (uses_weights(k))
      for (int group : groups_at(k)) sum += counts(group) ? rules_of(group).elements : 0;
    return sum;
  }
  /// Weights held for longer than a use, tied ones among them, stand beside the live bound.
  constexpr bool counts(int group) const { return rules_of(group).hold == Hold::use && !is_shared(group); }

  constexpr void check_live_bound() const {
    if (rules_.live_bound == 0) return;
    for (int k = 0; k < static_cast<int>(computes_.size()); ++k)
      require<InputError>(needed(k) <= rules_.live_bound, "sharding: a bound of ", rules_.live_bound,
                          " live elements holds no unit ", at(k).unit, ", whose weights are ", needed(k),
                          " elements; raise it to the largest unit's, or cut the model into smaller units");
  }

  /// Used by units that do not follow each other: a tied weight. Held through a micro-batch at least.
  constexpr bool is_shared(int group) const {
    int first = -1, last = -1, users = 0;
    for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
      if (!contains(units_[static_cast<std::size_t>(unit)].groups, group)) continue;
      first = first < 0 ? unit : first;
      last = unit;
      ++users;
    }
    return last - first + 1 > users;
  }

  constexpr Lifetime lifetime(int group) const {
    Lifetime life;
    std::vector<int> uses;
    for (int k = 0; k < static_cast<int>(computes_.size()); ++k) {
      if (!contains(groups_at(k), group)) continue;
      if (uses_weights(k)) uses.push_back(k);
      if (at(k).action == Action::forward || pass_ == Pass::evaluate || !rules_of(group).trainable) continue;
      auto& ends = life.gradient_ends;
      if (!ends.empty() && at(ends.back()).micro_batch == at(k).micro_batch)
        ends.back() = k;
      else
        ends.push_back(k);
    }
    if (!uses.empty()) life.first_use = uses.front();
    if (rules_of(group).hold != Hold::always) life.gathered = held(group, uses);
    return life;
  }

  /// Merges a group's uses into the intervals that the rules ask for.
  constexpr std::vector<Interval> held(int group, const std::vector<int>& uses) const {
    const Hold hold = rules_of(group).hold;
    const bool shared = is_shared(group);
    std::vector<Interval> intervals;
    for (int use : uses) {
      bool extend = false;
      if (!intervals.empty()) {
        const int last = intervals.back().last;
        extend = hold == Hold::step || (at(last).micro_batch == at(use).micro_batch &&
                                        (shared || hold == Hold::micro_batch || stays(group, last, use)));
      }
      if (extend)
        intervals.back().last = use;
      else
        intervals.push_back({use, use});
    }
    if (hold == Hold::step && !intervals.empty()) intervals.back().last = static_cast<int>(computes_.size()) - 1;
    return intervals;
  }

  /// Whether a group that would be gathered again at once stays instead: that keeps the last block through the head.
  constexpr bool stays(int group, int last, int use) const {
    const int depth = rules_.live_bound > 0 ? std::min(rules_.prefetch_depth, 1) : rules_.prefetch_depth;
    if (use - depth > last + 1) return false;
    for (int k = last + 1; k < use; ++k) {
      if (at(k).action == Action::loss && !rules_.keep_last_block) return false;
      if (rules_.live_bound > 0 && needed(k) + rules_of(group).elements > rules_.live_bound) return false;
    }
    return true;
  }

  /// Issues the gathers of computation `ahead` at `now`; false where the live bound makes them wait.
  constexpr bool gather_for(int ahead, int now) {
    for (int group : groups_at(ahead)) {
      Lifetime& life = lives_[static_cast<std::size_t>(group)];
      const GroupRules& rules = rules_of(group);
      if (rules.across == Across::shard && !life.crossed && life.first_use == ahead) {
        schedule_.push_back({Action::gather_across, group, at(ahead).micro_batch});
        life.crossed = true;
      }
      if (life.issued >= life.gathered.size() || life.gathered[life.issued].first != ahead) continue;
      if (life.issued > 0 && life.gathered[life.issued - 1].last >= now) continue;  // not released yet
      if (counts(group)) {
        if (rules_.live_bound > 0 && ahead > now && live_ + rules.elements > rules_.live_bound) return false;
        live_ += rules.elements;
      }
      const bool again =
          life.issued > 0 && at(life.gathered[life.issued - 1].first).micro_batch == at(ahead).micro_batch;
      schedule_.push_back({rules_.group_after_forward && again ? Action::gather_in_group : Action::gather, group,
                           at(ahead).micro_batch});
      ++life.issued;
    }
    return true;
  }

  constexpr void release_after(int k) {
    const int micro_batch = at(k).micro_batch;
    for (int group = 0; group < static_cast<int>(groups_.size()); ++group) {
      Lifetime& life = lives_[static_cast<std::size_t>(group)];
      if (life.released == life.gathered.size() || life.gathered[life.released].last != k) continue;
      ++life.released;
      const bool again =
          life.released < life.gathered.size() && at(life.gathered[life.released].first).micro_batch == micro_batch;
      if (rules_.group_after_forward && again) schedule_.push_back({Action::keep, group, micro_batch});
      schedule_.push_back({Action::release, group, micro_batch});
      if (counts(group)) live_ -= rules_of(group).elements;
    }
  }

  constexpr void reduce_after(int k) {
    const int micro_batch = at(k).micro_batch;
    const bool last = micro_batch == micro_batches_ - 1;
    for (int group = 0; group < static_cast<int>(groups_.size()); ++group) {
      Lifetime& life = lives_[static_cast<std::size_t>(group)];
      if (life.ended == life.gradient_ends.size() || life.gradient_ends[life.ended] != k) continue;
      ++life.ended;
      if (rules_of(group).reduce_every_micro_batch || last) schedule_.push_back({Action::reduce, group, micro_batch});
      if (rules_of(group).across != Across::nothing && last)
        schedule_.push_back({Action::reduce_across, group, micro_batch});
    }
  }

  const Rules& rules_;
  const std::vector<UnitUse>& units_;
  const std::vector<GroupRules>& groups_;
  int micro_batches_;
  Pass pass_;
  std::vector<Compute> computes_;
  std::vector<Lifetime> lives_;
  std::int64_t live_ = 0;
  Schedule schedule_;
};

}  // namespace detail

/// The ordered list for one step of `micro_batches`. Unit 0 takes the tokens, the last unit makes the loss. Throws
/// InputError where a live bound is smaller than a unit.
constexpr Schedule make_schedule(const Rules& rules, const std::vector<UnitUse>& units,
                                 const std::vector<GroupRules>& groups, int micro_batches, Pass pass = Pass::train) {
  return detail::Scheduler(rules, units, groups, micro_batches, pass).run();
}

/// The same for groups that all follow the strategy's rules.
constexpr Schedule make_schedule(const Rules& rules, const std::vector<UnitUse>& units, int micro_batches,
                                 Pass pass = Pass::train) {
  int groups = 0;
  for (const UnitUse& unit : units)
    for (int group : unit.groups) groups = std::max(groups, group + 1);
  const GroupRules alike{
      .hold = rules.hold, .reduce_every_micro_batch = rules.reduce_every_micro_batch, .across = rules.across};
  return make_schedule(rules, units, std::vector<GroupRules>(static_cast<std::size_t>(groups), alike), micro_batches,
                       pass);
}

}  // namespace fsdp::sharding

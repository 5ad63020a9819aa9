// SPDX-License-Identifier: Apache-2.0
/// @file
/// Derives a schedule from a strategy's rules and a model's units.
///
/// This header is long, since it is constexpr. Code that makes schedules at run time only includes strategy.hpp
/// instead.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

namespace detail {

/// The computations [first, last], by number, during which a group's weights stay gathered.
struct Interval {
  int first;
  int last;
};

/// The lifetime of one group in a pass, and the part of it that is already in the schedule.
struct Lifetime {
  std::vector<Interval> gathered;
  std::vector<int> gradient_ends;  ///< the last write to its gradient in each micro-batch
  int first_use = -1;
  std::size_t issued = 0;    ///< number of gathers already in the schedule
  std::size_t released = 0;  ///< number of releases already in the schedule
  std::size_t ended = 0;     ///< number of gradient ends already passed
  bool crossed = false;      ///< whether its gather over the outer axis is already in the schedule
};

/// Derives a schedule. Its state reflects the tasks added so far.
class Scheduler {
 public:
  constexpr Scheduler(const Rules& rules, const Problem& problem)
      : rules_(rules), problem_(problem), computes_(computations(problem)) {
    for (const GroupFacts& group : each(problem.groups))
      smallest_ = smallest_ == 0 ? group.bytes_per_weight : std::min(smallest_, group.bytes_per_weight);
    find_shared();
    check_live_bound();
    steps_.reserve(computes_.size());
    for (const Task& task : each(computes_))
      steps_.push_back(steps_.empty() ? 0 : steps_.back() + (problem_.begins(task) ? 1 : 0));
    for (int group = 0; group < static_cast<int>(problem_.groups.size()); ++group) all_.push_back(group);
    ascending_.reserve(problem_.units.size());
    for (const UnitUse& unit : each(problem_.units)) {
      ascending_.push_back(unit.groups);
      if (unit.groups.size() > 1) std::sort(ascending_.back().begin(), ascending_.back().end());
    }
    find_lifetimes();
  }

  constexpr Schedule run() {
    const int count = static_cast<int>(computes_.size());
    schedule_.reserve(4 * computes_.size());
    for (int k = 0; k < count; ++k) {
      for (int ahead = k; ahead < count && step(ahead) - step(k) <= rules_.prefetch_depth; ++ahead)
        if (!gather_for(ahead, k)) break;
      schedule_.push_back(at(k));
      release_after(k);
      reduce_after(k);
    }
    return std::move(schedule_);
  }

 private:
  constexpr const Task& at(int k) const { return computes_[static_cast<std::size_t>(k)]; }
  /// Returns the number of a computation, where consecutive stages of a unit count as one.
  constexpr int step(int k) const { return steps_[static_cast<std::size_t>(k)]; }
  constexpr const std::vector<int>& groups_at(int k) const { return problem_.unit(at(k).index).groups; }
  constexpr bool uses_weights(int k) const { return problem_.uses_weights(at(k)); }

  /// Returns how long a group stays gathered in this pass.
  constexpr Hold hold_of(int group) const {
    const GroupFacts& facts = problem_.group(group);
    if (facts.resident || facts.hold == Hold::always || problem_.pass == Pass::generate_again) return Hold::always;
    if (facts.persistent || problem_.pass == Pass::generate) return Hold::step;
    if (facts.hold == Hold::use && !problem_.holds.empty())
      return chosen_hold(problem_.holds[static_cast<std::size_t>(group)]);
    return facts.hold;
  }
  /// Returns a hold of Problem::holds as it applies to the pass. An evaluation equals a training step up to its first
  /// loss, and so uses the same slots: groups that the step would still hold then stay gathered.
  constexpr Hold chosen_hold(Hold hold) const {
    return problem_.pass == Pass::evaluate && hold == Hold::micro_batch ? Hold::step : hold;
  }
  constexpr bool reduces_every_micro_batch(int group) const {
    return problem_.group(group).reduce_every_micro_batch && !problem_.group(group).resident;
  }

  /// Returns a group's elements as the live bound counts them.
  constexpr std::int64_t size_of(int group) const { return problem_.group(group).weight_bytes() / smallest_; }
  /// Returns the number of elements that are gathered only for computation `k`.
  constexpr std::int64_t needed(int k) const {
    std::int64_t sum = 0;
    if (uses_weights(k))
      for (int group : groups_at(k)) sum += counts(group) ? size_of(group) : 0;
    return sum;
  }
  /// Whether a group counts towards the live bound. Tied weights and weights that stay gathered for longer than one use
  /// do not count.
  constexpr bool counts(int group) const { return hold_of(group) == Hold::use && !is_shared(group); }

  constexpr void check_live_bound() const {
    if (rules_.live_bound == 0) return;
    if (!problem_.holds.empty())
      require<InputError>(false, "sharding: a bound of ", rules_.live_bound,
                          " live elements and a budget for gathered weights both say how much is gathered at a time; "
                          "leave one of them out");
    int largest = -1;
    for (int k = 0; k < static_cast<int>(computes_.size()); ++k)
      if (needed(k) > (largest < 0 ? rules_.live_bound : needed(largest))) largest = k;
    if (largest >= 0)
      require<InputError>(false, "sharding: a bound of ", rules_.live_bound, " live elements holds no unit ",
                          at(largest).index, ", whose weights are ", needed(largest),
                          " elements; raise it to them, or cut the model into smaller units");
  }

  /// Whether units that are not adjacent use the group: a tied weight. It stays gathered for at least a micro-batch.
  constexpr bool is_shared(int group) const { return shared_[static_cast<std::size_t>(group)] != 0; }
  constexpr void find_shared() {
    std::vector<int> last(problem_.groups.size(), -1);
    shared_.assign(problem_.groups.size(), 0);  // clang 14 cannot evaluate resize
    for (int unit = 0; unit < static_cast<int>(problem_.units.size()); ++unit)
      for (const int group : each(problem_.unit(unit).groups)) {
        int& before = last[static_cast<std::size_t>(group)];
        if (before >= 0 && before + 1 < unit) shared_[static_cast<std::size_t>(group)] = 1;
        before = unit;
      }
  }

  constexpr void find_lifetimes() {
    lives_.resize(problem_.groups.size());
    const int count = static_cast<int>(computes_.size());
    for (int k = 0; k < count; ++k)
      for (const int group : each(groups_at(k))) {
        Lifetime& life = lives_[static_cast<std::size_t>(group)];
        if (uses_weights(k)) add_use(life, group, k);
        if (!problem_.writes_gradients(at(k)) || !problem_.group(group).trainable) continue;
        auto& ends = life.gradient_ends;
        if (!ends.empty() && at(ends.back()).micro_batch == at(k).micro_batch)
          ends.back() = k;
        else
          ends.push_back(k);
      }
    for (const int group : each(all_)) {
      Lifetime& life = lives_[static_cast<std::size_t>(group)];
      if (!life.gathered.empty() && hold_of(group) == Hold::step) life.gathered.back().last = count - 1;
    }
  }

  /// Extends the interval during which a group stays gathered to its next use, or begins another one.
  constexpr void add_use(Lifetime& life, int group, int use) const {
    if (life.first_use < 0) life.first_use = use;
    const Hold hold = hold_of(group);
    if (hold == Hold::always) return;
    if (!life.gathered.empty()) {
      const int last = life.gathered.back().last;
      if (hold == Hold::step || (at(last).micro_batch == at(use).micro_batch &&
                                 (is_shared(group) || hold == Hold::micro_batch || stays(group, last, use)))) {
        life.gathered.back().last = use;
        return;
      }
    }
    life.gathered.push_back({use, use});
  }

  /// Whether a group stays gathered because it would be gathered again immediately. This keeps the last block's weights
  /// through the head.
  constexpr bool stays(int group, int last, int use) const {
    const int depth = rules_.live_bound > 0 ? std::min(rules_.prefetch_depth, 1) : rules_.prefetch_depth;
    if (step(use) - depth > step(last) + 1) return false;
    for (int k = last + 1; k < use; ++k) {
      if (at(k).action == Action::loss && !problem_.group(group).held_to_head) return false;
      if (rules_.live_bound > 0 && needed(k) + size_of(group) > rules_.live_bound) return false;
    }
    return true;
  }

  /// Adds the gathers of computation `ahead` before computation `now`. Returns false if the live bound postpones them.
  constexpr bool gather_for(int ahead, int now) {
    for (const int group : each(groups_at(ahead))) {
      Lifetime& life = lives_[static_cast<std::size_t>(group)];
      const GroupFacts& facts = problem_.group(group);
      if (crosses(facts) && !life.crossed && life.first_use == ahead) {
        add(Action::gather_across, group, at(ahead).micro_batch);
        life.crossed = true;
      }
      if (life.issued >= life.gathered.size() || life.gathered[life.issued].first != ahead) continue;
      if (life.issued > 0 && life.gathered[life.issued - 1].last >= now) continue;  // not released yet
      if (counts(group)) {
        if (rules_.live_bound > 0 && ahead > now && live_ + size_of(group) > rules_.live_bound) return false;
        live_ += size_of(group);
      }
      const bool again =
          life.issued > 0 && at(life.gathered[life.issued - 1].first).micro_batch == at(ahead).micro_batch;
      add(facts.axes.keeps_parts() && again ? Action::gather_in_group : Action::gather, group, at(ahead).micro_batch);
      ++life.issued;
    }
    return true;
  }

  /// Whether the group's shards must be gathered over the outer axis, since each rank's optimizer steps only a part of
  /// them.
  constexpr bool crosses(const GroupFacts& facts) const {
    return facts.across == Across::shard && problem_.pass != Pass::generate_again;
  }

  /// Returns the groups whose holds or gradients may end after a computation, in ascending order: the unit's own
  /// groups, or all groups after the last computation.
  constexpr const std::vector<int>& ending_at(int k) const {
    return k + 1 == static_cast<int>(computes_.size()) ? all_ : ascending_[static_cast<std::size_t>(at(k).index)];
  }

  constexpr void release_after(int k) {
    if (problem_.pass == Pass::generate) return;
    const int micro_batch = at(k).micro_batch;
    for (const int group : each(ending_at(k))) {
      Lifetime& life = lives_[static_cast<std::size_t>(group)];
      if (life.released == life.gathered.size() || life.gathered[life.released].last != k) continue;
      ++life.released;
      const bool again =
          life.released < life.gathered.size() && at(life.gathered[life.released].first).micro_batch == micro_batch;
      if (problem_.group(group).axes.keeps_parts() && again) add(Action::keep, group, micro_batch);
      add(Action::release, group, micro_batch);
      if (counts(group)) live_ -= size_of(group);
    }
  }

  constexpr void reduce_after(int k) {
    const int micro_batch = at(k).micro_batch;
    const bool last = micro_batch == problem_.micro_batches - 1;
    for (const int group : each(ending_at(k))) {
      Lifetime& life = lives_[static_cast<std::size_t>(group)];
      if (life.ended == life.gradient_ends.size() || life.gradient_ends[life.ended] != k) continue;
      ++life.ended;
      if (reduces_every_micro_batch(group) || last) add(Action::reduce, group, micro_batch);
      if (problem_.group(group).across != Across::nothing && last) add(Action::reduce_across, group, micro_batch);
    }
  }

  constexpr void add(Action action, int group, int micro_batch) {
    schedule_.push_back({.action = action, .index = group, .micro_batch = micro_batch});
  }

  const Rules& rules_;
  const Problem& problem_;
  Schedule computes_;
  std::vector<int> steps_;                   // [computes_]
  std::vector<char> shared_;                 // [groups]
  std::vector<int> all_;                     // [groups]
  std::vector<std::vector<int>> ascending_;  // [units]: their groups, ascending
  std::vector<Lifetime> lives_;
  std::int64_t smallest_ = 0;  ///< fewest bytes of an element of any group
  std::int64_t live_ = 0;
  Schedule schedule_;
};

}  // namespace detail

/// Returns the schedule of groups that have the holds and reductions of their strategies, with the prefetch depth and
/// the live bound of `rules`. Its slots are not assigned yet (slots.hpp). Throws InputError if the live bound is
/// smaller than a unit, or is combined with Problem::holds.
constexpr Schedule make_schedule_of_groups(const Rules& rules, const Problem& problem) {
  return detail::Scheduler(rules, problem).run();
}

/// Returns the schedule that follows from the rules of one strategy for all groups. Throws as above.
constexpr Schedule make_schedule(const Rules& rules, Problem problem) {
  for (GroupFacts& group : detail::each(problem.groups)) {
    group.hold = hold_of(rules, group.axes);
    group.reduce_every_micro_batch = rules.reduce_every_micro_batch;
  }
  return make_schedule_of_groups(rules, problem);
}

}  // namespace fsdp::sharding

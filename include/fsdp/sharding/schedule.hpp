// SPDX-License-Identifier: Apache-2.0
/// @file
/// The schedule of a step as a value: gathers, computations, releases and reductions, in order.
///
/// Strategies give rules, a model gives its units' groups of weights; `make_schedule` derives the list. The executor
/// runs that list and nothing else. Gathering for backward is derived too: a unit whose backward takes no weights does
/// not appear as a user of them, and nothing before the first trainable unit has a backward at all.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include <fsdp/core/error.hpp>

namespace fsdp::sharding {

enum class Action : std::uint8_t {
  gather,           ///< start the all-gather of a group's weights
  gather_in_group,  ///< the same from the parts that `keep` left with k ranks
  gather_across,    ///< start to gather the shards at rest over the mesh's outer axis
  forward,          ///< of a unit; waits for its gathers
  loss,             ///< forward and backward of the last unit
  backward,         ///< of a unit
  keep,             ///< copy this rank's part, of k, of a group's gathered weights
  release,          ///< give a group's gathered weights up
  reduce,           ///< start the reduction of a group's gradients
  reduce_across,    ///< start to reduce the summed shards over the mesh's outer axis
};

/// Whether an action is a unit's and not a group's.
constexpr bool computes(Action action) {
  return action == Action::forward || action == Action::loss || action == Action::backward;
}

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

/// What happens over the outer axis of a mesh, once a step.
enum class Across : std::uint8_t {
  nothing,     ///< there is none, or a group's own reduction covers it
  all_reduce,  ///< optimizer state is replicated over it
  shard,       ///< optimizer state is sharded over it: reduce-scatter, and a gather at the first use in a step
};

/// What a strategy decides about a step.
struct Rules {
  Hold hold = Hold::use;
  bool reduce_every_micro_batch = true;  ///< otherwise the partial sums are kept and reduced after the last
  int prefetch_depth = 1;                ///< computations that a gather is issued ahead of its use
  Across across = Across::nothing;
  bool group_after_forward = false;  ///< after forward k ranks keep the weights together, and gather them from there
  bool keep_last_block = true;       ///< the last block's weights stay through the head
  std::int64_t persistence_threshold = 0;  ///< tensors up to so many elements are held through a step once gathered
  std::int64_t live_bound = 0;  ///< most elements gathered per use at a time; 0: as many as prefetching asks for
};

/// What differs between the groups of one model.
struct GroupRules {
  Hold hold = Hold::use;
  bool reduce_every_micro_batch = true;
  Across across = Across::nothing;
  bool trainable = true;      ///< frozen weights have no gradient
  std::int64_t elements = 0;  ///< gathered; read where there is a live bound
};

/// Groups of weights that a unit uses, and whether its backward needs them.
struct UnitUse {
  std::vector<int> groups;
  bool backward_needs_weights = true;
};

enum class Pass : std::uint8_t { train, evaluate };  ///< evaluate: forward only, the loss makes no gradient

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
  std::size_t issued = 0;  ///< gathers already in the schedule
  bool crossed = false;    ///< gathered across already
};

/// Derives a schedule; its state is what the list so far has done.
class Scheduler {
 public:
  constexpr Scheduler(const Rules& rules, const std::vector<UnitUse>& units, const std::vector<GroupRules>& groups,
                      int micro_batches, Pass pass)
      : rules_(rules), units_(units), groups_(groups), micro_batches_(micro_batches), pass_(pass) {
    first_backward_ = first_trainable();
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

  /// The lowest unit with something to train; a backward goes down to it.
  constexpr int first_trainable() const {
    for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit)
      for (int group : units_[static_cast<std::size_t>(unit)].groups)
        if (rules_of(group).trainable) return unit;
    return static_cast<int>(units_.size());
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

  /// Forward through all units, the loss in the last, backward through the others.
  constexpr void list_computations() {
    const int units = static_cast<int>(units_.size());
    for (int m = 0; m < micro_batches_; ++m) {
      for (int unit = 0; unit + 1 < units; ++unit) computes_.push_back({Action::forward, unit, m});
      computes_.push_back({Action::loss, units - 1, m});
      if (pass_ == Pass::train)
        for (int unit = units - 2; unit >= first_backward_; --unit) computes_.push_back({Action::backward, unit, m});
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
    for (int group = 0; group < static_cast<int>(groups_.size()); ++group) {
      const auto& gathered = lives_[static_cast<std::size_t>(group)].gathered;
      for (std::size_t i = 0; i < gathered.size(); ++i) {
        if (gathered[i].last != k) continue;
        const int micro_batch = at(k).micro_batch;
        const bool again = i + 1 < gathered.size() && at(gathered[i + 1].first).micro_batch == micro_batch;
        if (rules_.group_after_forward && again) schedule_.push_back({Action::keep, group, micro_batch});
        schedule_.push_back({Action::release, group, micro_batch});
        if (counts(group)) live_ -= rules_of(group).elements;
      }
    }
  }

  constexpr void reduce_after(int k) {
    const int micro_batch = at(k).micro_batch;
    const bool last = micro_batch == micro_batches_ - 1;
    for (int group = 0; group < static_cast<int>(groups_.size()); ++group) {
      if (!contains(lives_[static_cast<std::size_t>(group)].gradient_ends, k)) continue;
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
  int first_backward_ = 0;
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

/// The lowest unit that has a backward; the number of units where nothing is trainable.
constexpr int first_backward(const std::vector<UnitUse>& units, const std::vector<GroupRules>& groups) {
  const Rules rules;
  return detail::Scheduler(rules, units, groups, 0, Pass::train).first_trainable();
}

constexpr std::string_view name_of(Action action) {
  switch (action) {
    case Action::gather: return "gather";
    case Action::gather_in_group: return "gather-in-group";
    case Action::gather_across: return "gather-across";
    case Action::forward: return "forward";
    case Action::loss: return "loss";
    case Action::backward: return "backward";
    case Action::keep: return "keep";
    case Action::release: return "release";
    case Action::reduce: return "reduce";
    case Action::reduce_across: return "reduce-across";
  }
  return "?";
}

}  // namespace fsdp::sharding

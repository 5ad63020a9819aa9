// SPDX-License-Identifier: Apache-2.0
/// @file
/// Timing of several things against each other: all of them once in every round, so that noise hits all alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace fsdp::bench {

/// The middle of the values, or the mean of the two in the middle; 0 of none.
double median(std::vector<double> values);

/// Cases that are timed in turn. Ratios between cases are taken round by round and only then reduced to their median.
class Rounds {
 public:
  using Action = std::function<void()>;

  /// Returns the case's number. `prepare` runs before each `body` and is not timed.
  std::size_t add(Action body, Action prepare = {});

  /// One round that is not counted where `warm_up`, then `count` rounds. `before_each` runs before every body: a
  /// barrier of ranks.
  void run(std::int64_t count, const Action& before_each = {}, bool warm_up = true);

  /// Seconds of every case in every round, to be made the same on all ranks by a reduction.
  std::span<double> samples() { return seconds_; }

  double seconds(std::size_t at, std::size_t round) const { return seconds_[at * rounds_ + round]; }
  double median_seconds(std::size_t at) const {
    return median_of([&](std::size_t round) { return seconds(at, round); });
  }
  /// Median over the rounds of a value that is calculated from one round's seconds.
  template <class F>
  double median_of(F value_in_round) const {
    std::vector<double> values;
    for (std::size_t round = 0; round < rounds_; ++round) values.push_back(value_in_round(round));
    return median(std::move(values));
  }

 private:
  struct Case {
    Action body;
    Action prepare;
  };
  std::vector<Case> cases_;
  std::vector<double> seconds_;  // [cases, rounds]
  std::size_t rounds_ = 0;
};

}  // namespace fsdp::bench

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Alternating timing of several cases. Every round runs each case once, so that noise affects all cases equally.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace fsdp::calibrate {

/// Returns the median: the middle value, or the mean of the two in the middle; 0 if there are no values.
double median(std::vector<double> values);

/// Cases that are timed alternately. Ratios between cases are computed per round; their median is reported.
class Rounds {
 public:
  using Action = std::function<void()>;

  /// Adds a case and returns its number. `prepare` runs before each `body` and is not timed.
  std::size_t add(Action body, Action prepare = {});

  /// Runs one warm-up round if `warm_up`, then `count` timed ones. `before_each` runs before every body.
  void run(std::int64_t count, const Action& before_each = {}, bool warm_up = true);

  /// Returns the seconds of every case in every round; writable, so that a reduction can make them equal on all ranks.
  std::span<double> samples() { return seconds_; }

  double seconds(std::size_t at, std::size_t round) const { return seconds_[at * rounds_ + round]; }
  double median_seconds(std::size_t at) const {
    return median_of([&](std::size_t round) { return seconds(at, round); });
  }
  /// Returns the median over the rounds of one case's seconds divided by another's.
  double median_ratio(std::size_t at, std::size_t to) const {
    return median_of([&](std::size_t round) { return seconds(at, round) / seconds(to, round); });
  }
  /// Returns the median over the rounds of a value that is computed from one round's seconds.
  template <class F>
  double median_of(F value_in_round) const {
    std::vector<double> values;
    values.reserve(rounds_);
    while (values.size() < rounds_) values.push_back(value_in_round(values.size()));
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

}  // namespace fsdp::calibrate

// SPDX-License-Identifier: Apache-2.0
#include "rounds.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace fsdp::calibrate {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::size_t Rounds::add(Action body, Action prepare) {
  cases_.push_back({std::move(body), std::move(prepare)});
  return cases_.size() - 1;
}

void Rounds::run(std::int64_t count, const Action& before_each, bool warm_up) {
  using Clock = std::chrono::steady_clock;
  rounds_ = static_cast<std::size_t>(count);
  seconds_.assign(cases_.size() * rounds_, 0);
  for (std::size_t round = warm_up ? 0 : 1; round <= rounds_; ++round)  // round 0 is the warm-up, which is not timed
    // A plain loop, since bench/gpu builds this file without range-v3
    for (std::size_t at = 0; at < cases_.size(); ++at) {
      if (cases_[at].prepare) cases_[at].prepare();
      if (before_each) before_each();
      const auto begin = Clock::now();
      cases_[at].body();
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      if (round > 0) seconds_[at * rounds_ + round - 1] = seconds;
    }
}

}  // namespace fsdp::calibrate

// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/step_times.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace fsdp::train {
namespace {

constexpr double straggles = 1.25;  // a straggler exceeds the median rank's seconds by this factor

}  // namespace

void StepMeter::add(const report::StepTimes& step) {
  sum_.all += step.all;
  if (step.collectives) sum_.collectives = sum_.collectives.value_or(0) + *step.collectives;
  ++steps_;
}

std::optional<report::StepTimes> StepMeter::mean() const {
  if (steps_ == 0) return std::nullopt;
  const auto steps = static_cast<double>(steps_);
  report::StepTimes mean{.all = sum_.all / steps};
  if (sum_.collectives) mean.collectives = *sum_.collectives / steps;
  return mean;
}

std::optional<report::Straggler> straggler(const comm::Ranks& ranks, const std::optional<report::StepTimes>& mean) {
  if (ranks.size() == 1 || !mean || !mean->collectives) return std::nullopt;
  std::vector<double> seconds(static_cast<std::size_t>(ranks.size()), 0.0);
  seconds[static_cast<std::size_t>(ranks.rank())] = mean->all - *mean->collectives;
  ranks.reduce(std::span<double>(seconds), comm::Reduction::max, {"times of steps"});
  std::vector<double> sorted = seconds;
  std::ranges::sort(sorted);
  const double median = sorted[(sorted.size() - 1) / 2];
  const auto slowest = std::ranges::max_element(seconds);
  if (*slowest <= straggles * median) return std::nullopt;
  return report::Straggler{.rank = slowest - seconds.begin(), .ratio = *slowest / median};
}

}  // namespace fsdp::train

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The learning rate of each step: a pure function, so that a resumed run needs nothing but the step's number.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace fsdp::train {

enum class LrShape : std::uint8_t { constant, cosine };

struct LrSchedule {
  LrShape shape = LrShape::constant;
  double peak = 1e-3;
  std::int64_t warmup = 0;     ///< steps; the first has peak / warmup
  std::int64_t steps = 1;      ///< of the whole run
  double last_fraction = 0.1;  ///< cosine: the last step has this fraction of the peak

  friend bool operator==(const LrSchedule&, const LrSchedule&) = default;
};

/// Step 0 is the first. Linear warm-up, then constant, or a half cosine down to last_fraction x peak at the last step.
inline double lr_at(const LrSchedule& schedule, std::int64_t step) {
  if (step < schedule.warmup)
    return schedule.peak * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup);
  if (schedule.shape == LrShape::constant) return schedule.peak;
  const std::int64_t length = schedule.steps - 1 - schedule.warmup;
  const std::int64_t done = step - schedule.warmup;
  if (done >= length) return length <= 0 && done <= 0 ? schedule.peak : schedule.peak * schedule.last_fraction;
  const double turn = std::numbers::pi * static_cast<double>(done) / static_cast<double>(length);
  return schedule.peak * (schedule.last_fraction + (1 - schedule.last_fraction) * 0.5 * (1 + std::cos(turn)));
}

}  // namespace fsdp::train

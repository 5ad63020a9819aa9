// SPDX-License-Identifier: Apache-2.0
/// @file
/// The learning rate of each step: a pure function, so that a resumed run needs nothing but the step's number.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace fsdp::train {

/// Courses of the rate after warm-up.
enum class LrShape : std::uint8_t { constant, linear, cosine, wsd };
inline constexpr std::array<std::string_view, 4> lr_shapes = {"constant", "linear", "cosine", "wsd"};  ///< their names

/// A learning rate by step.
struct LrSchedule {
  LrShape shape = LrShape::constant;
  double peak = 1e-3;
  std::int64_t warmup = 0;     ///< steps; the first has peak / warmup
  std::int64_t steps = 1;      ///< of the whole run
  double last_fraction = 0.1;  ///< all but constant: the last step has this fraction of the peak
  std::int64_t decay = 0;      ///< wsd: the last steps, each below the peak; 0: a tenth of the run, at least one

  friend bool operator==(const LrSchedule&, const LrSchedule&) = default;
};

/// Step 0 is the first. Linear warm-up, then constant; or down to last_fraction x peak at the last step, along a line
/// or half a cosine from the warm-up's end on, or at the peak until a line begins (warm-up, stable, decay).
inline double lr_at(const LrSchedule& schedule, std::int64_t step) {
  if (step < schedule.warmup)
    return schedule.peak * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup);
  if (schedule.shape == LrShape::constant) return schedule.peak;
  std::int64_t length = schedule.steps - 1 - schedule.warmup;
  if (schedule.shape == LrShape::wsd)
    length = std::min(length, schedule.decay > 0 ? schedule.decay : std::max<std::int64_t>(schedule.steps / 10, 1));
  const std::int64_t done = step - (schedule.steps - 1 - length);
  if (done >= length) return length <= 0 && done <= 0 ? schedule.peak : schedule.peak * schedule.last_fraction;
  if (done <= 0) return schedule.peak;
  const double at = static_cast<double>(done), end = static_cast<double>(length);
  const double left =
      schedule.shape == LrShape::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * at / end)) : 1 - at / end;
  return schedule.peak * (schedule.last_fraction + (1 - schedule.last_fraction) * left);
}

}  // namespace fsdp::train

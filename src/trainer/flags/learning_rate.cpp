// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/learning_rate.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fsdp::train {

double lr_at(const LrSchedule& schedule, std::int64_t step) {
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

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Learning-rate schedules: pure functions of the step, so that a resumed run needs only the step's number.
#pragma once

#include <cstdint>

namespace fsdp::train {

/// The shape of the schedule after warm-up.
enum class LrShape : std::uint8_t { constant, linear, cosine, wsd };

/// A learning-rate schedule.
struct LrSchedule {
  LrShape shape = LrShape::constant;
  double peak = 1e-3;
  std::int64_t warmup = 0;     ///< number of warm-up steps; the first step's rate is peak / warmup
  std::int64_t steps = 1;      ///< number of steps of the whole run
  double last_fraction = 0.1;  ///< rate of the last step as a fraction of the peak; not used by constant
  std::int64_t decay = 0;      ///< wsd: length of the final decay in steps; 0: a tenth of the run, at least one

  friend bool operator==(const LrSchedule&, const LrSchedule&) = default;
};

/// Returns the learning rate of a step; the first is step 0. After a linear warm-up to the peak:
/// - constant: stays at the peak;
/// - linear, cosine: falls from the end of warm-up to last_fraction x peak at the last step, along a line or half a
///   cosine;
/// - wsd (warm-up, stable, decay): stays at the peak, then falls linearly over the last `decay` steps.
double lr_at(const LrSchedule& schedule, std::int64_t step);

}  // namespace fsdp::train

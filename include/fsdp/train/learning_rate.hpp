// SPDX-License-Identifier: Apache-2.0
/// @file
/// The learning rate of each step: a pure function, so that a resumed run needs nothing but the step's number.
#pragma once

#include <array>
#include <cstdint>
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
double lr_at(const LrSchedule& schedule, std::int64_t step);

}  // namespace fsdp::train

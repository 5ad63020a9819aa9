// SPDX-License-Identifier: Apache-2.0
/// @file
/// Dynamic loss scaling: gradients are multiplied by a power of two that keeps small ones above a narrow type's floor.
#pragma once

#include <cstdint>

namespace fsdp {

/// The scale grows after `interval` sound steps and shrinks at once where a gradient is not finite; that step is
/// skipped. Source: Micikevicius et al. 2018; constants are those of PyTorch's GradScaler.
class DynamicLossScale {
 public:
  /// What a checkpoint keeps of it.
  struct State {
    double scale = 65536;
    std::int64_t sound_steps = 0;  ///< since the scale last changed
    friend bool operator==(const State&, const State&) = default;
  };

  static constexpr double growth = 2, backoff = 0.5;
  static constexpr std::int64_t interval = 2000;
  static constexpr double smallest = 0x1p-24, largest = 0x1p100;  ///< 1 / scale must be a normal float

  DynamicLossScale() = default;
  /// Throws InputError unless the scale is a power of two between 2^-24 and 2^100: others would round.
  explicit DynamicLossScale(const State& state);

  /// For checkpoints.
  const State& state() const { return state_; }
  /// By which the loss of the next step is multiplied.
  double scale() const { return state_.scale; }

  /// After a step that was made `with` a scale; `finite` must be the same on every rank. A larger scale than today's,
  /// of a step that was queued before its predecessor was known, says nothing new. Throws DivergedError where no
  /// scale can help.
  void update(bool finite, double with);

 private:
  State state_;
};

}  // namespace fsdp

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Dynamic loss scaling: multiplies gradients by a power of two, so that small ones do not underflow in a narrow type.
#pragma once

#include <cstdint>

namespace fsdp {

/// A dynamic loss scale. It grows after `interval` finite steps, and shrinks immediately if a gradient is not finite;
/// that step is skipped. Source: Micikevicius et al. 2018; the constants are those of PyTorch's GradScaler.
class DynamicLossScale {
 public:
  /// The state that a checkpoint stores.
  struct State {
    double scale = 65536;          ///< factor of the next step's loss
    std::int64_t sound_steps = 0;  ///< number of finite steps since the scale last changed

    template <class Self, class Visitor>
    static void visit(Self& self, Visitor&& visitor) {
      visitor("scale", self.scale);
      visitor("sound_steps", self.sound_steps);
    }
    friend bool operator==(const State&, const State&) = default;
  };

  static constexpr double growth = 2;             ///< factor of the scale after `interval` finite steps
  static constexpr double backoff = 0.5;          ///< factor of the scale after a nonfinite step
  static constexpr std::int64_t interval = 2000;  ///< number of finite steps between two increases
  static constexpr double smallest = 0x1p-24;     ///< minimum scale
  static constexpr double largest = 0x1p100;      ///< maximum scale; 1 / scale must be a normal float

  DynamicLossScale() = default;
  /// Resumes from `state`. Throws InputError unless the scale is a power of two between 2^-24 and 2^100; other scales
  /// would cause rounding.
  explicit DynamicLossScale(const State& state);

  /// Returns the state for a checkpoint.
  const State& state() const { return state_; }
  /// Returns the factor for the next step's loss.
  double scale() const { return state_.scale; }

  /// Updates the scale after a step that used scale `with`; `finite` must be the same on every rank. Ignores a
  /// nonfinite step with a scale above the current one: that step was enqueued before the overflow of an earlier step
  /// was known. Throws DivergedError if a step at the smallest scale is not finite.
  void update(bool finite, double with);

 private:
  State state_;
};

}  // namespace fsdp

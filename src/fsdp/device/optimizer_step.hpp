// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scalar arithmetic of an optimizer step, shared by all devices: exact norms, the step's decision, and AdamW's
/// factors.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include <tessera/fsdp/device/operations/codec.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>

#include "host_device.hpp"

namespace fsdp::device {

/// Returns the bits of |x| as an integer.
FSDP_BOTH std::int64_t magnitude_bits(float x) { return __builtin_bit_cast(std::uint32_t, x) & 0x7fffffffu; }

/// Returns whether x is neither infinite nor NaN, by its bits, since its callers may be compiled with -ffast-math.
FSDP_BOTH bool is_finite(double x) { return (__builtin_bit_cast(std::uint64_t, x) >> 52 & 0x7ff) != 0x7ff; }

FSDP_BOTH std::int64_t larger_of(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

/// Returns e of FixedPointSquares for the bits of the largest magnitude, which is finite.
FSDP_BOTH int fixed_point_exponent(std::int64_t largest) { return static_cast<int>(larger_of(largest >> 23, 1)) - 127; }
/// Returns 2^(29 - e).
FSDP_BOTH double fixed_point_scale(std::int64_t largest) { return ldexp(1.0, 29 - fixed_point_exponent(largest)); }

/// Returns rint(x * scale), if that is below 2^31. The product is exact.
FSDP_BOTH std::int32_t fixed_point(float x, double scale) {
  constexpr double to_whole = 0x1.8p52;  // adding it rounds to an integer, which is then in the low 32 bits
  const double shifted = static_cast<double>(x) * scale + to_whole;
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(__builtin_bit_cast(std::uint64_t, shifted)));
}

/// A sum of FixedPointSquares: low + high * 2^32, where 0 <= low < 2^32.
struct FixedPointSum {
  std::int64_t low = 0, high = 0;

  /// Adds more_low + more_high * 2^32. The parts may have any sign and size, as long as sums of parts fit.
  FSDP_BOTH void add(std::int64_t more_low, std::int64_t more_high) {
    low += more_low;
    high += more_high + (low >> 32);
    low &= 0xffffffff;
  }
};

/// Returns the norm of all ranks' gradients from `largest` [ranks, norms] and `exact` [ranks, norms, 2], which begin at
/// the column of this norm. It is infinite if an element is infinite, NaN if one is NaN.
FSDP_BOTH double exact_norm(const std::int64_t* largest, const std::int64_t* exact, std::int64_t ranks,
                            std::int64_t norms) {
  std::int64_t most = 0;
  std::uint64_t low = 0, high = 0;  // a sum of 128 bits
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    most = larger_of(most, largest[norms * rank]);
    const auto own_low = static_cast<std::uint64_t>(exact[2 * norms * rank]);
    const auto own_high = static_cast<std::uint64_t>(exact[2 * norms * rank + 1]);
    const std::uint64_t middle = own_high << 32;
    low += own_low;
    if (low < own_low) ++high;
    low += middle;
    if (low < middle) ++high;
    high += own_high >> 32;
  }
  constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  if (most >= infinity_bits) return most > infinity_bits ? nan : infinity;
  // The devices' own conversions of wide integers may round differently. Products with a power of two are exact.
  constexpr double word = 4294967296.0;
  double sum = static_cast<double>(static_cast<std::uint32_t>(high >> 32));
  sum = sum * word + static_cast<double>(static_cast<std::uint32_t>(high));
  sum = sum * word + static_cast<double>(static_cast<std::uint32_t>(low >> 32));
  sum = sum * word + static_cast<double>(static_cast<std::uint32_t>(low));
  return ldexp(sqrt(sum), fixed_point_exponent(most) - 29);
}

/// The values of a step on every rank, as in DecideStep: `sums` [ranks, columns]. `largest` [ranks, 1 + apart] and
/// `exact` [ranks, 1 + apart, 2] replace the sums of squares if they are given.
struct StepSums {
  const double* sums;
  std::int64_t ranks, columns;
  std::int64_t apart = 0;
  const std::int64_t* largest = nullptr;
  const std::int64_t* exact = nullptr;

  /// Returns a norm by its number. Squares are added in rank order.
  FSDP_BOTH double norm(std::int64_t number) const {
    if (exact != nullptr) return exact_norm(largest + number, exact + 2 * number, ranks, 1 + apart);
    const std::int64_t column = number == 0 ? 1 : columns - apart + number - 1;
    double squares = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) squares += sums[columns * rank + column];
    return sqrt(squares);
  }
  /// Returns the loss, added micro-batch by micro-batch, each in rank order.
  FSDP_BOTH double loss() const {
    double loss = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) loss += sums[columns * rank];
    for (std::int64_t column = 3; column < columns - apart; ++column)
      for (std::int64_t rank = 0; rank < ranks; ++rank) loss += sums[columns * rank + column];
    return loss;
  }
  /// Returns the first rank that gave up its pass; -1 if no rank did.
  FSDP_BOTH std::int32_t forfeited() const {
    for (std::int64_t rank = 0; columns - apart >= 3 && rank < ranks; ++rank)
      if (sums[columns * rank + 2] != 0) return static_cast<std::int32_t>(rank);
    return -1;
  }
};

/// Returns the values on which a DecideStep operation bases its decision.
inline StepSums sums_of(const DecideStep& op) {
  return {.sums = op.sums.data(),
          .ranks = op.ranks(),
          .columns = op.sums.columns(),
          .apart = op.apart,
          .largest = op.largest.data(),
          .exact = op.is_exact() ? op.exact.data() : nullptr};
}

/// Decides on a step that clips by norm `number`, with `lr` times the learning rate. The step is skipped if a rank gave
/// up the pass, or if any norm is nonfinite. A nonfinite norm also stops all later steps, unless rules.skips_overflow
/// is set; a nonfinite loss always does.
FSDP_BOTH void decide_step(const StepRules& rules, const StepInputs& inputs, const StepSums& of, StepDecision& step,
                           double lr = 1, std::int64_t number = 0) {
  step.forfeited = of.forfeited();
  step.loss = of.loss();
  double norm = of.norm(number);
  for (std::int64_t other = 0; other <= of.apart && is_finite(norm); ++other)
    if (other != number)
      if (const double found = of.norm(other); !is_finite(found)) norm = found;
  step.norm = norm / inputs.loss_scale;
  if (step.forfeited >= 0) {  // the loss lacks this rank's part, so it is not checked
    step.skipped = 1;
    return;
  }
  const bool overflow = !is_finite(step.norm);
  if (!is_finite(step.loss) || (overflow && !rules.skips_overflow)) step.stopped = 1;
  step.skipped = overflow || step.stopped != 0 ? 1 : 0;
  if (step.skipped != 0) return;
  ++step.taken;
  const double clipped = rules.clip > 0 ? fmin(1.0, rules.clip / (step.norm + 1e-6)) : 1.0;
  step.gradient_scale = static_cast<float>(clipped / inputs.loss_scale);
  step.lr = inputs.lr * lr;
}

/// AdamW's constants for one call, in the form that its elements use. Bias corrections are computed in double from the
/// betas as rounded to float. They therefore match the moments, even if float rounds a beta near 1.
struct AdamWFactors {
  float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float root_scale;  ///< 1 / sqrt(1 - beta2^taken)
  float eps, decay;
  float step_size;  ///< lr / (1 - beta1^taken)

  FSDP_BOTH AdamWFactors(const AdamWRules& rules, const StepDecision& step)
      : gradient_scale(step.gradient_scale),
        beta1(static_cast<float>(rules.beta1)),
        one_minus_beta1(static_cast<float>(1.0 - static_cast<double>(beta1))),
        beta2(static_cast<float>(rules.beta2)),
        one_minus_beta2(static_cast<float>(1.0 - static_cast<double>(beta2))),
        root_scale(static_cast<float>(1 / sqrt(1 - pow(static_cast<double>(beta2), static_cast<double>(step.taken))))),
        eps(rules.eps),
        decay(static_cast<float>(1.0 - static_cast<double>(static_cast<float>(step.lr)) *
                                           static_cast<double>(rules.weight_decay))),
        step_size(
            static_cast<float>(step.lr / (1 - pow(static_cast<double>(beta1), static_cast<double>(step.taken))))) {}
};

/// Computes AdamW's step of one element.
FSDP_BOTH void adamw(const AdamWFactors& f, float& weight, float& first_moment, float& second_moment, float gradient) {
  const float g = gradient * f.gradient_scale;
  first_moment = f.beta1 * first_moment + f.one_minus_beta1 * g;
  second_moment = f.beta2 * second_moment + f.one_minus_beta2 * g * g;
  const float root = sqrtf(second_moment) * f.root_scale + f.eps;
  weight = weight * f.decay - f.step_size * (first_moment / root);
}

/// Returns the draw of a step for elements from `begin`: each step has its own key. 0 stays 0.
FSDP_BOTH Draw step_draw(const Draw& draw, std::int64_t begin, const StepDecision& step) {
  const std::uint64_t key = draw.key == 0 ? 0 : draw.key + static_cast<std::uint64_t>(step.taken);
  return {.key = key, .first = draw.first + begin};
}

}  // namespace fsdp::device

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parts of an optimizer step: the squared norm of the gradients, in double or exact, and the decision whether and how
/// to step.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operation.hpp>

namespace fsdp::device {

/// Number of elements per partial sum of SumOfSquares.
inline constexpr std::int64_t sum_chunk = 16384;

/// Adds the sum of squares of x to sum[0], in double, in an order that does not depend on the number of threads.
struct SumOfSquares {
  static constexpr std::string_view name = "sum_of_squares";

  Tensor<const float> x = {};
  Tensor<double> sum = {};  // [1]

  /// Returns the number of partial sums.
  std::int64_t chunks() const { return ceil_divide(x.numel(), sum_chunk); }
  auto tensors() const { return std::tie(x, sum); }
  Cost cost() const { return {.bytes = x.bytes()}; }
  void check() const {
    require(x.contiguous() && sum.numel() >= 1, "sum_of_squares: needs a contiguous tensor and a sum");
  }
};

/// The bits of an infinite float. Bits of magnitudes are ordered as the magnitudes are; above these, they are of NaN.
inline constexpr std::int64_t infinity_bits = 0x7f800000;

/// Raises largest[0] to the bits of the largest |x_i|, read as an integer. It starts at 0.
struct LargestMagnitude {
  static constexpr std::string_view name = "largest_magnitude";

  Tensor<const float> x = {};
  Tensor<std::int64_t> largest = {};  // [1]

  /// Returns the number of partial results on a device that has one for each chunk.
  std::int64_t chunks() const { return ceil_divide(x.numel(), sum_chunk); }
  auto tensors() const { return std::tie(x, largest); }
  Cost cost() const { return {.bytes = x.bytes()}; }
  void check() const {
    require(x.contiguous() && largest.numel() == 1, "largest_magnitude: needs a contiguous tensor and one result");
  }
};

/// Adds the squares of x to `sum` as integers: the result does not depend on their order, so neither on threads, ranks
/// and instruction sets. `largest` holds every rank's largest magnitude (LargestMagnitude), of which the maximum
/// counts; no |x_i| may exceed it. With 2^e the power of two at or below it, or 2^-126 if it is smaller, x_i counts as
/// q = rint(x_i 2^(29 - e)), ties to even, so that |q| < 2^30. The norm is sqrt(sum) 2^(e - 29), with a relative error
/// of at most sqrt(N) 2^-30 for N elements. Adds nothing if the maximum is infinite or NaN.
/// `sum` holds the low 32 bits and the rest, both before and afterwards; it has room for 2^35 elements.
struct FixedPointSquares {
  static constexpr std::string_view name = "fixed_point_squares";

  Tensor<const float> x = {};
  Tensor<const std::int64_t> largest = {};  // [ranks], or [ranks, 1]: a column of several norms' largest magnitudes
  Tensor<std::int64_t> sum = {};            // [2]

  /// Returns the number of partial sums on a device that has one for each chunk.
  std::int64_t chunks() const { return ceil_divide(x.numel(), sum_chunk); }
  auto tensors() const { return std::tie(x, largest, sum); }
  Cost cost() const { return {.bytes = x.bytes()}; }
  /// Returns the distance from one rank's largest magnitude to the next one's.
  std::int64_t largest_stride() const { return largest.rank() == 2 ? largest.row_stride() : 1; }
  void check() const {
    const bool one_each = largest.rank() == 1 || (largest.rank() == 2 && largest.columns() == 1);
    require(x.contiguous() && one_each && largest.numel() >= 1 && sum.numel() == 2,
            "fixed_point_squares: needs a contiguous tensor, each rank's largest magnitude, and a sum of two integers");
  }
};

/// A run's rules for its steps.
struct StepRules {
  double clip = 0;              ///< largest global gradient norm; 0: no clipping
  bool skips_overflow = false;  ///< whether nonfinite gradients only skip the step, as with a loss scale
};

/// The host's inputs of a step.
struct StepInputs {
  double lr = std::numeric_limits<double>::quiet_NaN();  ///< has no default: a step refuses NaN
  double loss_scale = 1;                                 ///< that the gradients include
};

/// The device's decision on a step (DecideStep), for the optimizer and, later, the host.
struct StepDecision {
  std::int64_t taken = 0;       ///< steps so far that changed the weights
  double loss = 0;              ///< sum over ranks
  double norm = 0;              ///< of the unscaled gradients that are clipped together; not finite if any is not
  double lr = 0;                ///< of the last step taken
  float gradient_scale = 1;     ///< min(1, clip / (norm + 1e-6)) / loss_scale
  std::int32_t skipped = 0;     ///< 1: this step does not change main weights and optimizer state
  std::int32_t stopped = 0;     ///< 1: neither do all later steps
  std::int32_t forfeited = -1;  ///< the first rank that gave up this step's pass, which skips the step; -1: none
};

/// Decides from every rank's losses, sum of squared gradients and forfeit whether a step is taken, and its factor for
/// clipping and loss scale. `step` holds the previous step's decision on entry.
///
/// Losses are added micro-batch by micro-batch, each in rank order. With `largest` and `exact`, what LargestMagnitude
/// and FixedPointSquares found on every rank, the norm comes from these instead of the sums of squares: it has the same
/// bits whichever rank holds which gradient, and on all devices.
///
/// Gradients that are clipped apart from the others have norms of their own, numbered from 1; 0 is the norm of the
/// rest. A decision clips by one of them, and is a decision to skip if any is not finite.
struct DecideStep {
  static constexpr std::string_view name = "decide_step";

  StepRules rules = {};
  double lr = 1;                         ///< factor of the learning rate
  std::int64_t norm = 0;                 ///< number of the norm that clips
  std::int64_t apart = 0;                ///< number of norms besides that of the rest
  Tensor<const StepInputs> inputs = {};  // [1]
  /// [ranks, 2 + apart or more]: the loss of the first micro-batch, the sum of squares, 1 where a rank gave up its
  /// pass, the losses of further micro-batches, and the sums of squares of the norms apart
  Tensor<const double> sums = {};
  Tensor<const std::int64_t> largest = {};  // [ranks, 1 + apart] or empty
  Tensor<const std::int64_t> exact = {};    // [ranks, 2 (1 + apart)] or empty
  Tensor<StepDecision> step = {};           // [1]

  /// Returns the number of ranks.
  std::int64_t ranks() const { return sums.rows(); }
  /// Returns whether the norm is the exact one.
  bool is_exact() const { return exact.numel() > 0; }
  auto tensors() const { return std::tie(inputs, sums, largest, exact, step); }
  Cost cost() const { return {}; }
  void check() const {
    require(sums.rank() == 2 && sums.columns() >= 2 + apart && sums.rows() >= 1 && sums.contiguous(),
            "decide_step: sums are a loss, a sum of squares and perhaps a forfeit and further losses for each rank, "
            "[ranks, 2 or more]");
    require(norm >= 0 && norm <= apart, "decide_step: there is no norm ", norm, " beside the ", apart, " apart");
    const std::int64_t with_norm = is_exact() ? ranks() * (1 + apart) : 0;
    require(
        largest.numel() == with_norm && exact.numel() == 2 * with_norm && largest.contiguous() && exact.contiguous(),
        "decide_step: an exact norm needs the largest magnitude [ranks] and the sum of squares [ranks, 2] of all ",
        ranks(), " ranks");
  }
};

/// Main weights at rest, which an optimizer's operation writes. Rejects gathered weights at compile time.
struct MainWeights : Tensor<float> {
  MainWeights() = default;
  /// Takes writable weights at rest.
  MainWeights(const Tensor<float>& weights) : Tensor<float>(weights) {}
  /// Rejects gathered weights, which are read-only, with a static_assert.
  template <class T>
  MainWeights(const Tensor<const T>&) {
    static_assert(!std::is_same_v<T, T>,
                  "fsdp: an optimizer steps main weights at rest; gathered weights are read-only views that the next "
                  "gather replaces. Give it the shards of a ShardedModule (shards(), main())");
  }
};

}  // namespace fsdp::device

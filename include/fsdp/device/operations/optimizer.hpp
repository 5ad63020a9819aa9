// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parts of an optimizer step: the squared norm of the gradients, and the decision whether and how to step.
#pragma once

#include <cstdint>
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

/// A run's rules for its steps.
struct StepRules {
  double clip = 0;              ///< largest global gradient norm; 0: no clipping
  bool skips_overflow = false;  ///< whether nonfinite gradients only skip the step, as with a loss scale
};

/// The host's inputs of a step.
struct StepInputs {
  double lr = 0;
  double loss_scale = 1;  ///< that the gradients include
};

/// The device's decision on a step (DecideStep), for the optimizer and, later, the host.
struct StepDecision {
  std::int64_t taken = 0;       ///< steps so far that changed the weights
  double loss = 0;              ///< sum over ranks
  double norm = 0;              ///< global norm of the unscaled gradients
  double lr = 0;                ///< of the last step taken
  float gradient_scale = 1;     ///< min(1, clip / (norm + 1e-6)) / loss_scale
  std::int32_t skipped = 0;     ///< 1: this step does not change main weights and optimizer state
  std::int32_t stopped = 0;     ///< 1: neither do all later steps
  std::int32_t forfeited = -1;  ///< the first rank that gave up this step's pass, which skips the step; -1: none
};

/// Decides from every rank's loss, sum of squared gradients and forfeit whether a step is taken, and its factor for
/// clipping and loss scale. `step` holds the previous step's decision on entry.
struct DecideStep {
  static constexpr std::string_view name = "decide_step";

  StepRules rules = {};
  Tensor<const StepInputs> inputs = {};  // [1]
  Tensor<const double> sums = {};        // [ranks, 2 or 3]: loss, sum of squares, 1 where a rank gave up its pass
  Tensor<StepDecision> step = {};        // [1]

  /// Returns the number of ranks.
  std::int64_t ranks() const { return sums.rows(); }
  auto tensors() const { return std::tie(inputs, sums, step); }
  Cost cost() const { return {}; }
  void check() const {
    require(sums.rank() == 2 && sums.columns() >= 2 && sums.columns() <= 3 && sums.rows() >= 1 && sums.contiguous(),
            "decide_step: sums are a loss, a sum of squares and perhaps a forfeit for each rank, [ranks, 2 or 3]");
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
                  "gather replaces. Give it the pieces of a ShardedModule (pieces(), main())");
  }
};

}  // namespace fsdp::device

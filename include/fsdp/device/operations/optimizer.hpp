// SPDX-License-Identifier: Apache-2.0
/// @file
/// Operations of optimizers: the squared norm of the gradients (in double or exact), the decision whether and how to
/// update the weights, and the steps of AdamW and SGD.
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

/// Number of elements per partial sum, on a device that computes one per chunk.
inline constexpr std::int64_t sum_chunk = 16384;

/// Adds the sum of squares of x to sum[0], in double, in an order that does not depend on the number of threads.
struct SumOfSquares {
  static constexpr std::string_view name = "sum_of_squares";

  Tensor<const float> x = {};
  Tensor<double> sum = {};  // [1]

  std::int64_t chunks() const { return ceil_divide(x.numel(), sum_chunk); }  ///< number of partial results
  auto tensors() const { return std::tie(x, sum); }
  Cost cost() const { return {.bytes = x.bytes()}; }
  void check() const {
    require(x.contiguous() && sum.numel() >= 1, "sum_of_squares: needs a contiguous tensor and a sum");
  }
};

/// The bits of an infinite float. As integers, the bits of magnitudes are ordered like the magnitudes; larger bits are
/// NaN.
inline constexpr std::int64_t infinity_bits = 0x7f800000;

/// Sets largest[0] to the maximum of itself and the bits of the largest |x_i|, read as an integer. Its initial value is
/// 0.
struct LargestMagnitude {
  static constexpr std::string_view name = "largest_magnitude";

  Tensor<const float> x = {};
  Tensor<std::int64_t> largest = {};  // [1]

  std::int64_t chunks() const { return ceil_divide(x.numel(), sum_chunk); }  ///< number of partial results
  auto tensors() const { return std::tie(x, largest); }
  Cost cost() const { return {.bytes = x.bytes()}; }
  void check() const {
    require(x.contiguous() && largest.numel() == 1, "largest_magnitude: needs a contiguous tensor and one result");
  }
};

/// Adds the squares of x to `sum` as integers, so the result does not depend on their order, and hence not on threads,
/// ranks or instruction sets. `largest` contains every rank's largest magnitude (LargestMagnitude); their maximum is
/// used, and no |x_i| may exceed it. Let 2^e be the largest power of two that is at most the maximum, but at least
/// 2^-126. Then x_i is replaced by q = rint(x_i 2^(29 - e)), ties to even, so that |q| < 2^30. The norm is sqrt(sum)
/// 2^(e - 29), with a relative error of at most sqrt(N) 2^-30 for N elements. Adds nothing if the maximum is infinite
/// or NaN. `sum` contains the low 32 bits and the remaining high bits, before and afterwards; it has room for 2^35
/// elements.
struct FixedPointSquares {
  static constexpr std::string_view name = "fixed_point_squares";

  Tensor<const float> x = {};
  Tensor<const std::int64_t> largest = {};  // [ranks], or [ranks, 1]: a column of several norms' largest magnitudes
  Tensor<std::int64_t> sum = {};            // [2]

  std::int64_t chunks() const { return ceil_divide(x.numel(), sum_chunk); }  ///< number of partial results
  auto tensors() const { return std::tie(x, largest, sum); }
  Cost cost() const { return {.bytes = x.bytes()}; }
  /// Returns the distance from one rank's largest magnitude to the next rank's, in elements.
  std::int64_t largest_stride() const { return largest.rank() == 2 ? largest.row_stride() : 1; }
  void check() const {
    const bool one_each = largest.rank() == 1 || (largest.rank() == 2 && largest.columns() == 1);
    require(x.contiguous() && one_each && largest.numel() >= 1 && sum.numel() == 2,
            "fixed_point_squares: needs a contiguous tensor, each rank's largest magnitude, and a sum of two integers");
  }
};

/// The rules for all steps of a run.
struct StepRules {
  double clip = 0;              ///< largest global gradient norm; 0: no clipping
  bool skips_overflow = false;  ///< whether nonfinite gradients only skip the step, as with a loss scale
};

/// The inputs of a step that the host provides.
struct StepInputs {
  double lr = std::numeric_limits<double>::quiet_NaN();  ///< learning rate; NaN by default, which a step rejects
  double loss_scale = 1;                                 ///< loss scale that the gradients include
};

/// The device's decision on a step (DecideStep), for the optimizer and, later, the host.
struct StepDecision {
  std::int64_t taken = 0;    ///< number of steps so far that changed the weights
  double loss = 0;           ///< loss, summed over ranks
  double norm = 0;           ///< norm of the unscaled gradients that are clipped together; nonfinite if any gradient is
  double lr = 0;             ///< learning rate of the last step that changed the weights
  float gradient_scale = 1;  ///< min(1, clip / (norm + 1e-6)) / loss_scale
  std::int32_t skipped = 0;  ///< 1: this step does not change main weights and optimizer state
  std::int32_t stopped = 0;  ///< 1: this step and all later steps are skipped
  std::int32_t forfeited = -1;  ///< the first rank that gave up this step's pass, so that the step is skipped; -1: none
};

/// Decides whether a step is taken, and computes its factor for clipping and loss scale, from every rank's losses, sum
/// of squared gradients and forfeit. On entry, `step` contains the decision on the previous step.
///
/// Losses are added micro-batch by micro-batch, each in rank order. If `largest` and `exact`, the results of
/// LargestMagnitude and FixedPointSquares on every rank, are given, the norm is computed from them instead of the sums
/// of squares. It is then bit-identical on all devices, and for every distribution of the gradients over ranks.
///
/// Gradients that are clipped separately have their own norms, numbered from 1; 0 is the norm of all other gradients. A
/// decision clips by one of the norms, and skips the step if any norm is not finite.
struct DecideStep {
  static constexpr std::string_view name = "decide_step";

  StepRules rules = {};
  double lr = 1;                         ///< factor applied to the learning rate
  std::int64_t norm = 0;                 ///< number of the norm to clip by
  std::int64_t apart = 0;                ///< number of separate norms, in addition to norm 0
  Tensor<const StepInputs> inputs = {};  // [1]
  /// [ranks, 2 + apart or more]: the loss of the first micro-batch, the sum of squares, 1 if the rank gave up its pass,
  /// the losses of further micro-batches, and the sums of squares of the separate norms
  Tensor<const double> sums = {};
  Tensor<const std::int64_t> largest = {};  // [ranks, 1 + apart] or empty
  Tensor<const std::int64_t> exact = {};    // [ranks, 2 (1 + apart)] or empty
  Tensor<StepDecision> step = {};           // [1]

  std::int64_t ranks() const { return sums.rows(); }   ///< number of ranks
  bool is_exact() const { return exact.numel() > 0; }  ///< whether the exact norm is used
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

/// Sharded (not gathered) main weights, which an optimizer's operation writes. Rejects gathered weights at compile
/// time.
struct MainWeights : Tensor<float> {
  MainWeights() = default;
  MainWeights(const Tensor<float>& weights) : Tensor<float>(weights) {}  ///< takes writable, sharded weights
  /// Rejects gathered weights, which are read-only, with a static_assert.
  template <class T>
  MainWeights(const Tensor<const T>&) {
    static_assert(!std::is_same_v<T, T>,
                  "fsdp: an optimizer steps main weights at rest; gathered weights are read-only views that the next "
                  "gather replaces. Give it the shards of a ShardedModule (shards(), main())");
  }
};

/// AdamW's constants for one tensor.
struct AdamWRules {
  double beta1 = 0.9, beta2 = 0.95;
  float eps = 1e-8f;
  float weight_decay = 0;
};

/// One pass of AdamW over contiguous shards (Loshchilov and Hutter 2019, decoupled decay). Updates moments and main
/// weights, and writes model weights in the modules' compute type. If `model` is empty, the main weights are the model
/// weights; for float this is always the case. A skipped step writes only the model weights.
template <class Model = float>
struct AdamWStep {
  static constexpr std::string_view name = "adamw";

  AdamWRules rules = {};
  Tensor<const StepDecision> step = {};  // [1]
  MainWeights main = {};
  Tensor<float> first_moment = {}, second_moment = {};
  Tensor<const float> gradient = {};
  Tensor<Model> model = {};

  auto tensors() const { return std::tie(step, gradient, main, first_moment, second_moment, model); }
  Cost cost() const { return {.bytes = 7 * main.bytes() + model.bytes()}; }
  void check() const {
    const std::int64_t count = main.numel();
    require(first_moment.numel() == count && second_moment.numel() == count && gradient.numel() == count,
            "adamw: ", count, " weights with ", first_moment.numel(), " and ", second_moment.numel(), " moments and ",
            gradient.numel(), " gradients");
    require(model.numel() == 0 || (model.numel() == count && !std::is_same_v<Model, float>), "adamw: ", count,
            " weights with ", model.numel(), " model weights; as many are needed or none, and none of float");
    require(main.contiguous() && first_moment.contiguous() && second_moment.contiguous() && gradient.contiguous() &&
                model.contiguous(),
            "adamw: shards must be contiguous");
  }
};

/// Constants of SGD for one tensor.
struct SgdRules {
  float momentum = 0.9f;
  bool nesterov = false;
  float weight_decay = 0;
};

/// g = gradient_scale * gradient + weight_decay * main; momentum = rules.momentum * momentum + g; main -= lr *
/// (nesterov ? g + rules.momentum * momentum : momentum); model = main, rounded. If `momentum` is empty, main -= lr *
/// g. A skipped step writes only `model`.
template <class Model>
struct SgdStep {
  static constexpr std::string_view name = "sgd";

  SgdRules rules = {};
  Tensor<const StepDecision> step = {};  // [1]
  MainWeights main = {};                 // [n]
  Tensor<float> momentum = {};           // [n], or empty
  Tensor<const float> gradient = {};     // [n]
  Tensor<Model> model = {};              // [n], or empty if `main` is the model

  auto tensors() const { return std::tie(step, main, momentum, gradient, model); }
  Cost cost() const { return {.bytes = 2 * main.bytes() + 2 * momentum.bytes() + gradient.bytes() + model.bytes()}; }
  void check() const {
    const std::int64_t count = main.numel();
    require(gradient.numel() == count && (momentum.numel() == count || momentum.numel() == 0) &&
                (model.numel() == count || model.numel() == 0) && step.numel() == 1,
            "sgd: ", count, " weights with ", gradient.numel(), " gradients, a momentum of ", momentum.numel(),
            " and a model of ", model.numel());
    require(main.contiguous() && momentum.contiguous() && gradient.contiguous() && model.contiguous(),
            "sgd: tensors must be contiguous");
    require(momentum.numel() == count || rules.momentum == 0, "sgd: a momentum of ", rules.momentum,
            " needs its tensor");
  }
};

}  // namespace fsdp::device

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Muon's operations other than matmul (tessera/fsdp/training/run_time_optimizer.hpp): momentum, normalisation, linear
/// combinations for matrix polynomials, and the step.
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>

namespace fsdp::device {

/// g = gradient_scale * gradient; state = momentum * state + g; direction = nesterov ? g + momentum * state : state.
/// A skipped step leaves `state` unchanged and sets `direction` to zero.
struct MomentumDirection {
  static constexpr std::string_view name = "momentum_direction";

  float momentum = 0.95f;
  bool nesterov = true;
  Tensor<const StepDecision> step = {};  // [1]
  Tensor<const float> gradient = {};     // [n]
  Tensor<float> state = {};              // [n]
  Tensor<float> direction = {};          // [n]

  auto tensors() const { return std::tie(step, gradient, state, direction); }
  Cost cost() const { return {.bytes = gradient.bytes() + 2 * state.bytes() + direction.bytes()}; }
  void check() const {
    require(state.numel() == gradient.numel() && direction.numel() == gradient.numel() && step.numel() == 1,
            "momentum_direction: ", gradient.numel(), " gradients with a state of ", state.numel(),
            " and a direction of ", direction.numel());
    require(gradient.contiguous() && state.contiguous() && direction.contiguous(),
            "momentum_direction: tensors must be contiguous");
  }
};

/// y = x / (sqrt(squares) + 1e-7), with `squares` the sum of squares of x.
template <class T>
struct Normalized {
  static constexpr std::string_view name = "normalized";

  Tensor<const float> x = {};         // [n]
  Tensor<const double> squares = {};  // [1]
  Tensor<T> y = {};                   // [n]

  auto tensors() const { return std::tie(x, squares, y); }
  Cost cost() const { return {.bytes = x.bytes() + y.bytes()}; }
  void check() const {
    require(x.numel() == y.numel() && squares.numel() == 1 && x.contiguous() && y.contiguous(),
            "normalized: ", x.numel(), " elements into ", y.numel(), ", both contiguous");
  }
};

/// y = alpha * x + beta * y.
template <class T>
struct Combination {
  static constexpr std::string_view name = "combination";

  float alpha = 1;
  Tensor<const T> x = {};  // [n]
  float beta = 1;
  Tensor<T> y = {};  // [n]

  auto tensors() const { return std::tie(x, y); }
  Cost cost() const { return {.bytes = x.bytes() + 2 * y.bytes()}; }
  void check() const {
    require(x.numel() == y.numel() && x.contiguous() && y.contiguous(), "combination: ", x.numel(), " elements with ",
            y.numel(), ", both contiguous");
  }
};

/// main = main * (1 - lr * weight_decay) - lr * scale * direction; model = main, rounded. A skipped step writes only
/// `model`.
template <class T>
struct DirectionStep {
  static constexpr std::string_view name = "direction_step";

  float weight_decay = 0;
  float scale = 1;
  Tensor<const StepDecision> step = {};  // [1]
  Tensor<const T> direction = {};        // [n]
  MainWeights main = {};                 // [n]
  Tensor<T> model = {};                  // [n], or empty if `main` is the model

  auto tensors() const { return std::tie(step, direction, main, model); }
  Cost cost() const { return {.bytes = direction.bytes() + 2 * main.bytes() + model.bytes()}; }
  void check() const {
    const std::int64_t count = main.numel();
    require(direction.numel() == count && (model.numel() == count || model.numel() == 0) && step.numel() == 1,
            "direction_step: ", count, " weights with a direction of ", direction.numel(), " and a model of ",
            model.numel());
    require(main.contiguous() && direction.contiguous() && model.contiguous(),
            "direction_step: tensors must be contiguous");
  }
};

}  // namespace fsdp::device

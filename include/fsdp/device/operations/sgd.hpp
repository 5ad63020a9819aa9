// SPDX-License-Identifier: Apache-2.0
/// @file
/// The optimizer step of stochastic gradient descent (tessera/fsdp/optim/sgd.hpp).
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>

namespace fsdp::device {

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

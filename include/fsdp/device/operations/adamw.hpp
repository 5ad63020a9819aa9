// SPDX-License-Identifier: Apache-2.0
/// @file
/// The optimizer step of AdamW.
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>

namespace fsdp::device {

/// Constants of AdamW for one tensor.
struct AdamWRules {
  double beta1 = 0.9;
  double beta2 = 0.95;
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
  Tensor<float> first_moment = {};
  Tensor<float> second_moment = {};
  Tensor<const float> gradient = {};
  Tensor<Model> model = {};

  /// Returns whether the step also writes rounded model weights.
  bool writes_model() const { return model.numel() > 0; }
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

}  // namespace fsdp::device

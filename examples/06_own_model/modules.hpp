// SPDX-License-Identifier: Apache-2.0
/// @file
/// A forecaster's entry and head: a linear layer for the inputs, and one for the outputs with their squared error.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/projection.hpp>

#include "squared_error.hpp"

namespace forecaster {

namespace device = fsdp::device;
namespace nn = fsdp::nn;
using fsdp::Tensor;

template <class V>
struct LinearFields {
  V weight;  // [out, in]
};

/// y = x W^T. Backward needs no weights, so they are not gathered for it.
template <class L>
struct LinearEntry : nn::ModuleTypes<L, LinearFields> {
  using Types = nn::ModuleTypes<L, LinearFields>;
  using typename Types::Compute;
  using Shared = nn::Nothing;

  std::int64_t features = 0;
  std::int64_t hidden = 0;

  Shared share(nn::Context<L>&) const { return {}; }
  typename Types::Parameters parameters() const {
    return {{"/input.weight", {hidden, features}, nn::Initial::normal(0.3)}};
  }

  void forward(nn::Context<L>& context, const typename Types::Weights& weights, const Tensor<const float>& input,
               Tensor<Compute> y) const {
    typename L::Frame frame(context.arena);
    nn::project<L, 1>(context, computed(context, input, frame), {weights.weight}, {y});
  }
  void backward(nn::Context<L>& context, const typename Types::Gradients& gradients, const Tensor<const float>& input,
                Tensor<const Compute> dy) const {
    typename L::Frame frame(context.arena);
    nn::project_backward_weight<L, 1>(context, {dy}, computed(context, input, frame), {gradients.weight});
  }

 private:
  /// Returns the input, rounded to the compute type if that is not float.
  static Tensor<const Compute> computed(nn::Context<L>& context, const Tensor<const float>& input,
                                        typename L::Frame& frame) {
    if constexpr (std::is_same_v<Compute, float>) {
      return input;
    } else {
      const auto rounded = frame.template allocate<Compute>(input.shape());  // [T, F]
      device::enqueue(context.stream, device::Copy<float, Compute>{.x = input, .y = rounded});
      return rounded;
    }
  }
};

/// y = x W^T. The loss is the sum over rows of |y - target|^2. Targets of NaN are ignored.
template <class L>
struct SquaredErrorHead : nn::ModuleTypes<L, LinearFields> {
  using Types = nn::ModuleTypes<L, LinearFields>;
  using typename Types::Compute;
  using typename Types::Weights;

  std::int64_t hidden = 0;
  std::int64_t outputs = 0;

  typename Types::Parameters parameters() const {
    return {{"/output.weight", {outputs, hidden}, nn::Initial::normal(0.3)}};
  }
  void loss(nn::Context<L>& context, const Weights& weights, const typename Types::Gradients& gradients,
            Tensor<const Compute> x, const Tensor<const float>& targets, float scale, Tensor<Compute> dx,
            Tensor<double> loss) const {
    typename L::Frame frame(context.arena);
    const auto y = frame.template allocate<Compute>({x.rows(), outputs});  // [T, O], then its gradient
    nn::project<L, 1>(context, x, {weights.weight}, {y});
    device::enqueue(context.stream, SquaredError<Compute>{.y = y, .targets = targets, .scale = scale, .loss = loss});
    nn::project_backward_weight<L, 1>(context, {y}, x, {gradients.weight});
    nn::project_backward_input<L, 1>(context, {y}, {weights.weight}, dx);
  }
  void loss_only(nn::Context<L>& context, const Weights& weights, Tensor<const Compute> x,
                 const Tensor<const float>& targets, Tensor<double> loss) const {
    typename L::Frame frame(context.arena);
    const auto y = frame.template allocate<Compute>({x.rows(), outputs});  // [T, O]
    nn::project<L, 1>(context, x, {weights.weight}, {y});
    device::enqueue(context.stream, SquaredError<Compute>{.y = y, .targets = targets, .loss = loss});
  }
  /// Computes the outputs. A model whose head has `logits` can be used for Purpose::generate.
  void logits(nn::Context<L>& context, const Weights& weights, Tensor<const Compute> x, Tensor<Compute> y) const {
    nn::project<L, 1>(context, x, {weights.weight}, {y});  // [T, O]
  }
  std::int64_t logits_columns() const { return outputs; }
};

}  // namespace forecaster

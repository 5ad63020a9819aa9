// SPDX-License-Identifier: Apache-2.0
/// @file
/// The parts of GPT-2's modules: linear layers with a bias, and layer norms.
///
/// Weights of linear layers have shape [in, out], y = x W + b, as in Hugging Face's GPT-2 (its Conv1D), so that its
/// checkpoints load without transposing.
#pragma once

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/module.hpp>

#include "operations.hpp"

namespace gpt2 {

namespace device = fsdp::device;
namespace nn = fsdp::nn;

/// The weight and the bias of a linear layer or a norm.
template <class V>
struct Pair {
  V weight, bias;
};

template <class L>
using PairWeights = Pair<Tensor<const typename L::Compute>>;
template <class L>
using PairGradients = Pair<nn::GradientView<typename L::Accumulate>>;

/// y = x W + b, or y += x W + b.
template <class L>
void linear(nn::Context<L>& context, const PairWeights<L>& weights, Tensor<const typename L::Compute> x,
            Tensor<typename L::Compute> y, Write write = Write::overwrite) {
  using Compute = typename L::Compute;
  device::enqueue(context.stream, device::Matmul<Compute>{.a = x, .b = weights.weight, .c = y, .write = write});
  device::enqueue(context.stream, device::AddBias<Compute>{.bias = weights.bias, .y = y});
  context.progress();
}

/// dW (+)= x^T dy, and db (+)= the sum over rows of dy. Skips frozen parameters.
template <class L>
void linear_backward_weights(nn::Context<L>& context, const PairGradients<L>& gradients,
                             Tensor<const typename L::Compute> x, Tensor<const typename L::Compute> dy) {
  using Compute = typename L::Compute;
  if (gradients.weight.wanted())
    device::enqueue(
        context.stream,
        device::Matmul<Compute, typename L::Accumulate>{
            .a = device::transposed(x), .b = dy, .c = gradients.weight.tensor, .write = gradients.weight.next()});
  if (gradients.bias.wanted())
    device::enqueue(context.stream, device::BiasBackward<Compute>{
                                        .dy = dy, .dbias = gradients.bias.tensor, .write = gradients.bias.next()});
  context.progress();
}

/// dx = dy W^T.
template <class L>
void linear_backward_input(nn::Context<L>& context, const PairWeights<L>& weights, Tensor<const typename L::Compute> dy,
                           Tensor<typename L::Compute> dx) {
  using Compute = typename L::Compute;
  device::enqueue(context.stream, device::Matmul<Compute>{.a = dy, .b = device::transposed(weights.weight), .c = dx});
  context.progress();
}

/// The mean and 1 / standard deviation of each row.
struct Statistics {
  Tensor<float> mean, rstd;  // [T]

  Statistics slice(std::int64_t begin, std::int64_t end) const {
    return {mean.slice(begin, end), rstd.slice(begin, end)};
  }
};

/// y = layer_norm(x); also writes the rows' statistics.
template <class L>
void normalise(nn::Context<L>& context, const PairWeights<L>& weights, float eps, Tensor<const typename L::Compute> x,
               Tensor<typename L::Compute> y, const Statistics& statistics) {
  device::enqueue(context.stream, LayerNorm<typename L::Compute>{.x = x,
                                                                 .weight = weights.weight,
                                                                 .bias = weights.bias,
                                                                 .eps = eps,
                                                                 .y = y,
                                                                 .mean = statistics.mean,
                                                                 .rstd = statistics.rstd});
}

/// dx (+)= the norm's gradient. dx may alias dy.
template <class L>
void normalise_backward(nn::Context<L>& context, const PairWeights<L>& weights, const PairGradients<L>& gradients,
                        Tensor<const typename L::Compute> x, const Statistics& statistics,
                        Tensor<const typename L::Compute> dy, Tensor<typename L::Compute> dx, Write write) {
  device::enqueue(context.stream, LayerNormBackward<typename L::Compute>{.x = x,
                                                                         .weight = weights.weight,
                                                                         .mean = statistics.mean,
                                                                         .rstd = statistics.rstd,
                                                                         .dy = dy,
                                                                         .dx = dx,
                                                                         .dx_write = write,
                                                                         .dweight = gradients.weight.tensor,
                                                                         .dweight_write = gradients.weight.next(),
                                                                         .dbias = gradients.bias.tensor,
                                                                         .dbias_write = gradients.bias.next()});
}

}  // namespace gpt2

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The token embedding: the first unit of a language model.
#pragma once

#include <cstdint>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/operations.hpp>
#include <fsdp/nn/module.hpp>

namespace fsdp::nn {

template <class V>
struct EmbeddingFields {
  V table;  // [V, H]
};

/// y[t] = table[tokens[t]]. Backward takes no weights: they are never gathered for it.
template <class L>
struct Embedding : ModuleTypes<L, EmbeddingFields> {
  using Types = ModuleTypes<L, EmbeddingFields>;
  using typename Types::Compute;
  using typename Types::Gradients;
  using typename Types::Parameters;
  using typename Types::Weights;

  std::int64_t vocabulary = 0;
  std::int64_t hidden = 0;

  Parameters parameters() const { return {{"/model.embed_tokens.weight", {vocabulary, hidden}}}; }

  void forward(Context<L>& context, const Weights& weights, Tensor<const std::int32_t> tokens,
               Tensor<Compute> y) const {
    device::enqueue(context.stream, device::Embedding<Compute>{.table = weights.table, .tokens = tokens, .out = y});
  }

  void backward(Context<L>& context, const Gradients& gradients, Tensor<const std::int32_t> tokens,
                Tensor<const Compute> dy) const {
    if (!gradients.table.wanted()) return;
    device::enqueue(context.stream,
                    device::EmbeddingBackward<Compute>{
                        .tokens = tokens, .dy = dy, .dtable = gradients.table.tensor, .write = gradients.table.next()});
  }
};

}  // namespace fsdp::nn

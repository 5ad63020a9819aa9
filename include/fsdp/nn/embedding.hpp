// SPDX-License-Identifier: Apache-2.0
/// @file
/// The token embedding: the first unit of a language model, with or without a table of rotary positions, which all
/// blocks read.
#pragma once

#include <cstdint>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/module.hpp>

namespace fsdp::nn {

/// Cosines and sines of rotary positions, which count from the start of a document.
struct RotaryTable {
  /// [sequence_length, head_dim]: cosines of all pairs, then sines. In a decoding pass [sequences, head_dim]: one row
  /// per sequence, for the position of its new token.
  Tensor<const float> table;
};

/// The table of token embeddings.
template <class V>
struct EmbeddingFields {
  V table;  // [V, H]
};

/// y[t] = table[tokens[t]]. Backward does not read weights, so they are never gathered for it.
template <class L>
struct Embedding : ModuleTypes<L, EmbeddingFields> {
  FSDP_MODULE_TYPES(L, EmbeddingFields)

  static constexpr bool row_wise = true;  ///< each row of y depends on one token only (StagedBlock)
  std::int64_t vocabulary = 0;
  std::int64_t hidden = 0;

  using Shared = Nothing;
  Shared share(Context<L>&) const { return {}; }

  Parameters parameters() const {
    return {{.name = "/model.embed_tokens.weight",
             .shape = {vocabulary, hidden},
             .role = Role::table,
             .may_be_float = true}};
  }

  void forward(Context<L>& context, const Weights& weights, Tensor<const std::int32_t> tokens, Tensor<Compute> y) const;

  void backward(Context<L>& context, const Gradients& gradients, Tensor<const std::int32_t> tokens,
                Tensor<const Compute> dy) const;
};

/// An Embedding that also computes the rotary table for blocks whose attention rotates queries and keys.
template <class L>
struct RotaryEmbedding : Embedding<L> {
  std::int64_t head_dim = 0;
  float theta = 10000.0f;
  device::RotaryScaling scaling = {};

  using Shared = RotaryTable;
  Shared share(Context<L>& context) const;
};

template <class L>
void Embedding<L>::forward(Context<L>& context, const Weights& weights, Tensor<const std::int32_t> tokens,
                           Tensor<Compute> y) const {
  context.enqueue(weights.table, device::Embedding<Compute>{.tokens = tokens, .out = y});
}

template <class L>
void Embedding<L>::backward(Context<L>& context, const Gradients& gradients, Tensor<const std::int32_t> tokens,
                            Tensor<const Compute> dy) const {
  if (!gradients.table.wanted()) return;
  context.enqueue(device::EmbeddingBackward<Compute>{
      .tokens = tokens, .dy = dy, .dtable = gradients.table.tensor, .write = gradients.table.next()});
}

template <class L>
typename RotaryEmbedding<L>::Shared RotaryEmbedding<L>::share(Context<L>& context) const {
  const std::int64_t rows = context.positions.empty() ? context.sequence_length : context.sequences;
  const auto table = context.template save<float>({rows, head_dim});  // [S, d]; in a decoding pass [sequences, d]
  context.enqueue(
      device::RotaryTable{.theta = theta, .scaling = scaling, .table = table, .positions = context.positions.device});
  return {table};
}

}  // namespace fsdp::nn

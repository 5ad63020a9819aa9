// SPDX-License-Identifier: Apache-2.0
/// @file
/// A pre-norm transformer block: attention, then the MLP, each adding to the residual stream.
///
/// In addition to the tensors that the halves save, the residual stream between them is saved for backward. The
/// residual gradient is one [T, H] tensor that every half adds to in place.
#pragma once

#include <cstdint>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/residual_attention.hpp>
#include <tessera/fsdp/nn/swiglu_mlp.hpp>

namespace fsdp::nn {

/// Attention, then the MLP.
template <class V>
struct BlockFields {
  AttentionFields<V> attention;
  ResidualMlpFields<V> mlp;
};

/// Both halves as one unit of a transformer.
template <class L>
struct TransformerBlock : ModuleTypes<L, BlockFields> {
  FSDP_MODULE_TYPES(L, BlockFields)
  using Shared = RotaryTable;

  ResidualAttention<L> attention;
  ResidualMlp<L> mlp;

  struct Saved {
    typename ResidualAttention<L>::Saved attention;
    typename ResidualMlp<L>::Saved mlp;
  };

  Parameters parameters() const;

  /// Returns the MLP's tiling plan.
  tiling::TilePlan plan(Context<L>& context) const;

  void forward(Context<L>& context, const Shared& shared, const Weights& weights, Saved& saved, Tensor<const Compute> x,
               Tensor<Compute> y) const;

  std::int64_t cache_columns() const { return attention.cache_columns(); }
  void extend(Context<L>& context, const Shared& shared, const Weights& weights, Tensor<Compute> cache,
              Tensor<const Compute> x, Tensor<Compute> y) const;

  /// Recomputes the tensors that forward saves from the block's input, without the MLP's output.
  void replay(Context<L>& context, const Shared& shared, const Weights& weights, Saved& saved,
              Tensor<const Compute> x) const;

  void backward(Context<L>& context, const Shared& shared, const Weights& weights, const Gradients& gradients,
                const Saved& saved, Tensor<Compute> dy) const;
};

template <class L>
typename TransformerBlock<L>::Parameters TransformerBlock<L>::parameters() const {
  return {attention.parameters(), mlp.parameters()};
}

template <class L>
tiling::TilePlan TransformerBlock<L>::plan(Context<L>& context) const {
  return plan_of(context, mlp);
}

template <class L>
void TransformerBlock<L>::forward(Context<L>& context, const Shared& shared, const Weights& weights, Saved& saved,
                                  Tensor<const Compute> x, Tensor<Compute> y) const {
  const auto middle = context.template save<Compute>({context.tokens(), attention.hidden});  // [T, H]
  attention.forward(context, shared, weights.attention, saved.attention, x, middle);
  mlp.forward(context, weights.mlp, saved.mlp, middle, y);
}

template <class L>
void TransformerBlock<L>::extend(Context<L>& context, const Shared& shared, const Weights& weights,
                                 Tensor<Compute> cache, Tensor<const Compute> x, Tensor<Compute> y) const {
  const auto middle = context.template save<Compute>({context.tokens(), attention.hidden});  // [T, H]
  attention.extend(context, shared, weights.attention, cache, x, middle);
  typename ResidualMlp<L>::Saved saved;
  mlp.forward(context, weights.mlp, saved, middle, y);
}

template <class L>
void TransformerBlock<L>::replay(Context<L>& context, const Shared& shared, const Weights& weights, Saved& saved,
                                 Tensor<const Compute> x) const {
  const auto middle = context.template save<Compute>({context.tokens(), attention.hidden});  // [T, H]
  attention.forward(context, shared, weights.attention, saved.attention, x, middle);
  mlp.replay(context, weights.mlp, saved.mlp, middle);
}

template <class L>
void TransformerBlock<L>::backward(Context<L>& context, const Shared& shared, const Weights& weights,
                                   const Gradients& gradients, const Saved& saved, Tensor<Compute> dy) const {
  mlp.backward(context, weights.mlp, gradients.mlp, saved.mlp, dy);
  attention.backward(context, shared, weights.attention, gradients.attention, saved.attention, dy);
}

}  // namespace fsdp::nn

// SPDX-License-Identifier: Apache-2.0
/// @file
/// A pre-norm transformer block: attention, then the MLP, each adding to the residual stream.
///
/// Besides what the halves save, the residual stream between them is kept for backward. The residual gradient is one
/// [T, H] tensor that every half adds to in place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/residual_attention.hpp>
#include <tessera/fsdp/nn/residual_mlp.hpp>
#include <tessera/fsdp/nn/stages.hpp>

namespace fsdp::nn {

/// Attention, then the MLP.
template <class V>
struct BlockFields {
  AttentionFields<V> attention;
  ResidualMlpFields<V> mlp;
};

/// Both halves: one unit of a transformer.
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

  /// What the stages keep (tessera/fsdp/nn/stages.hpp).
  /// @{
  struct RowsSaved {
    typename ResidualAttention<L>::RowsSaved attention;
    typename ResidualMlp<L>::Saved mlp;
  };
  using HeadsSaved = typename ResidualAttention<L>::HeadsSaved;
  /// @}
  using Inputs = typename ResidualAttention<L>::Inputs;
  static constexpr std::size_t inputs = ResidualAttention<L>::inputs;
  static constexpr std::size_t common_inputs = ResidualAttention<L>::common_inputs;

  Parameters parameters() const;

  /// Returns the MLP's tiling plan.
  tiling::TilePlan plan(Context<L>& context) const;

  void forward(Context<L>& context, const Shared& shared, const Weights& weights, Saved& saved, Tensor<const Compute> x,
               Tensor<Compute> y) const;

  std::int64_t cache_columns() const { return attention.cache_columns(); }
  void extend(Context<L>& context, const Shared& shared, const Weights& weights, Tensor<Compute> cache,
              Tensor<const Compute> x, Tensor<Compute> y) const;

  /// Recomputes what forward saves from the block's input, without the MLP's output.
  void replay(Context<L>& context, const Shared& shared, const Weights& weights, Saved& saved,
              Tensor<const Compute> x) const;

  void backward(Context<L>& context, const Shared& shared, const Weights& weights, const Gradients& gradients,
                const Saved& saved, Tensor<Compute> dy) const;

  /// The middle is attention, cut by query heads; `after` includes the MLP.
  /// @{
  std::int64_t shares() const { return attention.shares(); }
  std::array<std::int64_t, inputs> input_columns(const HeadRange& range) const {
    return attention.input_columns(range);
  }
  std::int64_t output_columns(const HeadRange& range) const { return attention.output_columns(range); }
  void before(Context<L>& rows, const Shared& shared, const Weights& weights, RowsSaved& saved, Tensor<const Compute> x,
              const Part& part, std::span<const Inputs> in) const;
  void between(Context<L>& all, const Shared& shared, const Weights& weights, HeadsSaved& saved, const HeadRange& range,
               const Inputs& in, Tensor<Compute> out) const;
  void after(Context<L>& rows, const Shared& shared, const Weights& weights, RowsSaved& saved, Tensor<const Compute> x,
             std::span<const HeadRange> ranges, std::span<const Tensor<Compute>> outs, Tensor<Compute> y) const;
  void after_again(Context<L>& rows, const Shared& shared, const Weights& weights, RowsSaved& saved,
                   Tensor<const Compute> x, std::span<const HeadRange> ranges,
                   std::span<const Tensor<Compute>> outs) const;
  void after_backward(Context<L>& rows, const Shared& shared, const Weights& weights, const Gradients& gradients,
                      const RowsSaved& saved, std::span<const HeadRange> ranges, std::span<const Tensor<Compute>> outs,
                      Tensor<Compute> dy, std::span<const Tensor<Compute>> douts) const;
  void between_backward(Context<L>& all, const Shared& shared, const Weights& weights, const Gradients& gradients,
                        const HeadsSaved& saved, const HeadRange& range, const Inputs& in, Tensor<const Compute> out,
                        Tensor<const Compute> dout, const Inputs& din) const;
  void before_backward(Context<L>& rows, const Shared& shared, const Weights& weights, const Gradients& gradients,
                       const RowsSaved& saved, const Part& part, std::span<const Inputs> din, Tensor<Compute> dy) const;
  /// @}

 private:
  /// Computes the residual stream between attention and the MLP.
  Tensor<const Compute> finish_attention(Context<L>& rows, const Shared& shared, const Weights& weights,
                                         const RowsSaved& saved, Tensor<const Compute> x,
                                         std::span<const HeadRange> ranges,
                                         std::span<const Tensor<Compute>> outs) const;
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

template <class L>
void TransformerBlock<L>::before(Context<L>& rows, const Shared& shared, const Weights& weights, RowsSaved& saved,
                                 Tensor<const Compute> x, const Part& part, std::span<const Inputs> in) const {
  attention.before(rows, shared, weights.attention, saved.attention, x, part, in);
}

template <class L>
void TransformerBlock<L>::between(Context<L>& all, const Shared& shared, const Weights& weights, HeadsSaved& saved,
                                  const HeadRange& range, const Inputs& in, Tensor<Compute> out) const {
  attention.between(all, shared, weights.attention, saved, range, in, out);
}

template <class L>
auto TransformerBlock<L>::finish_attention(Context<L>& rows, const Shared& shared, const Weights& weights,
                                           const RowsSaved& saved, Tensor<const Compute> x,
                                           std::span<const HeadRange> ranges,
                                           std::span<const Tensor<Compute>> outs) const -> Tensor<const Compute> {
  const auto middle = rows.template save<Compute>({rows.tokens(), attention.hidden});  // [T, H]
  attention.after(rows, shared, weights.attention, saved.attention, x, ranges, outs, middle);
  return middle;
}

template <class L>
void TransformerBlock<L>::after(Context<L>& rows, const Shared& shared, const Weights& weights, RowsSaved& saved,
                                Tensor<const Compute> x, std::span<const HeadRange> ranges,
                                std::span<const Tensor<Compute>> outs, Tensor<Compute> y) const {
  mlp.forward(rows, weights.mlp, saved.mlp, finish_attention(rows, shared, weights, saved, x, ranges, outs), y);
}

template <class L>
void TransformerBlock<L>::after_again(Context<L>& rows, const Shared& shared, const Weights& weights, RowsSaved& saved,
                                      Tensor<const Compute> x, std::span<const HeadRange> ranges,
                                      std::span<const Tensor<Compute>> outs) const {
  mlp.replay(rows, weights.mlp, saved.mlp, finish_attention(rows, shared, weights, saved, x, ranges, outs));
}

template <class L>
void TransformerBlock<L>::after_backward(Context<L>& rows, const Shared& shared, const Weights& weights,
                                         const Gradients& gradients, const RowsSaved& saved,
                                         std::span<const HeadRange> ranges, std::span<const Tensor<Compute>> outs,
                                         Tensor<Compute> dy, std::span<const Tensor<Compute>> douts) const {
  mlp.backward(rows, weights.mlp, gradients.mlp, saved.mlp, dy);
  attention.after_backward(rows, shared, weights.attention, gradients.attention, saved.attention, ranges, outs, dy,
                           douts);
}

template <class L>
void TransformerBlock<L>::between_backward(Context<L>& all, const Shared& shared, const Weights& weights,
                                           const Gradients& gradients, const HeadsSaved& saved, const HeadRange& range,
                                           const Inputs& in, Tensor<const Compute> out, Tensor<const Compute> dout,
                                           const Inputs& din) const {
  attention.between_backward(all, shared, weights.attention, gradients.attention, saved, range, in, out, dout, din);
}

template <class L>
void TransformerBlock<L>::before_backward(Context<L>& rows, const Shared& shared, const Weights& weights,
                                          const Gradients& gradients, const RowsSaved& saved, const Part& part,
                                          std::span<const Inputs> din, Tensor<Compute> dy) const {
  attention.before_backward(rows, shared, weights.attention, gradients.attention, saved.attention, part, din, dy);
}

}  // namespace fsdp::nn

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stages of a TransformerBlock (tessera/fsdp/nn/stages.hpp), and `staged`, which returns the object that defines
/// the stages of any block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/nn/instances.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/one_of.hpp>
#include <tessera/fsdp/nn/recomputed.hpp>
#include <tessera/fsdp/nn/stages.hpp>
#include <tessera/fsdp/nn/transformer_block.hpp>
#include <tessera/fsdp/sequence/staged_attention.hpp>

namespace fsdp::nn {

/// The stages of a TransformerBlock, which must outlive it. They are the stages of its attention; `after` includes the
/// MLP.
template <class L>
struct StagedTransformerBlock {
  using Whole = TransformerBlock<L>;
  using Attention = StagedAttention<L>;
  using Compute = typename L::Compute;
  using Accumulate = typename L::Accumulate;
  using Shared = RotaryTable;
  using Weights = typename Whole::Weights;
  using Gradients = typename Whole::Gradients;
  template <class V>
  using FieldsOf = typename Whole::template FieldsOf<V>;
  static constexpr std::size_t parameter_count = Whole::parameter_count;
  using Inputs = typename Attention::Inputs;
  static constexpr std::size_t inputs = Attention::inputs;
  static constexpr std::size_t common_inputs = Attention::common_inputs;

  /// The tensors that the work on own rows saves.
  struct RowsSaved {
    typename Attention::RowsSaved attention;
    typename ResidualMlp<L>::Saved mlp;
  };
  using HeadsSaved = typename Attention::HeadsSaved;

  const Whole& block;
  Attention attention = {block.attention};

  /// See tessera/fsdp/nn/stages.hpp.
  /// @{
  auto parameters() const { return block.parameters(); }
  std::int64_t shares() const { return attention.shares(); }
  auto input_columns(const HeadRange& range) const { return attention.input_columns(range); }
  std::int64_t output_columns(const HeadRange& range) const { return attention.output_columns(range); }

  void before(Context<L>& rows, const Shared& shared, const Weights& weights, RowsSaved& saved, Tensor<const Compute> x,
              const Part& part, std::span<const Inputs> in) const {
    attention.before(rows, shared, weights.attention, saved.attention, x, part, in);
  }
  void between(Context<L>& all, const Shared& shared, const Weights& weights, HeadsSaved& saved, const HeadRange& range,
               const Inputs& in, Tensor<Compute> out) const {
    attention.between(all, shared, weights.attention, saved, range, in, out);
  }
  void after(Context<L>& rows, const Shared& shared, const Weights& weights, RowsSaved& saved, Tensor<const Compute> x,
             std::span<const HeadRange> ranges, std::span<const Tensor<Compute>> outs, Tensor<Compute> y) const {
    block.mlp.forward(rows, weights.mlp, saved.mlp, finish_attention(rows, shared, weights, saved, x, ranges, outs), y);
  }
  void after_again(Context<L>& rows, const Shared& shared, const Weights& weights, RowsSaved& saved,
                   Tensor<const Compute> x, std::span<const HeadRange> ranges,
                   std::span<const Tensor<Compute>> outs) const {
    block.mlp.replay(rows, weights.mlp, saved.mlp, finish_attention(rows, shared, weights, saved, x, ranges, outs));
  }
  void after_backward(Context<L>& rows, const Shared& shared, const Weights& weights, const Gradients& gradients,
                      const RowsSaved& saved, std::span<const HeadRange> ranges, std::span<const Tensor<Compute>> outs,
                      Tensor<Compute> dy, std::span<const Tensor<Compute>> douts) const {
    block.mlp.backward(rows, weights.mlp, gradients.mlp, saved.mlp, dy);
    attention.after_backward(rows, shared, weights.attention, gradients.attention, saved.attention, ranges, outs, dy,
                             douts);
  }
  void between_backward(Context<L>& all, const Shared& shared, const Weights& weights, const Gradients& gradients,
                        const HeadsSaved& saved, const HeadRange& range, const Inputs& in, Tensor<const Compute> out,
                        Tensor<const Compute> dout, const Inputs& din) const {
    attention.between_backward(all, shared, weights.attention, gradients.attention, saved, range, in, out, dout, din);
  }
  void before_backward(Context<L>& rows, const Shared& shared, const Weights& weights, const Gradients& gradients,
                       const RowsSaved& saved, const Part& part, std::span<const Inputs> din,
                       Tensor<Compute> dy) const {
    attention.before_backward(rows, shared, weights.attention, gradients.attention, saved.attention, part, din, dy);
  }
  /// @}

 private:
  /// Computes the residual stream between attention and the MLP.
  Tensor<const Compute> finish_attention(Context<L>& rows, const Shared& shared, const Weights& weights,
                                         const RowsSaved& saved, Tensor<const Compute> x,
                                         std::span<const HeadRange> ranges,
                                         std::span<const Tensor<Compute>> outs) const {
    const auto middle = rows.template save<Compute>({rows.tokens(), block.attention.hidden});  // [T, H]
    attention.after(rows, shared, weights.attention, saved.attention, x, ranges, outs, middle);
    return middle;
  }
};

namespace detail {

/// Whether the stages of a block are composed here: the block is one of the library's blocks, or derives from one, and
/// does not define stages.
/// @{
template <class L>
void composed(const ResidualAttention<L>&);
template <class L>
void composed(const TransformerBlock<L>&);
template <class Block>
concept Composed = requires(const Block& block) {
  composed(block);
  requires !requires { block.shares(); };
};
/// @}

}  // namespace detail

/// Returns the object that defines a block's stages: the block itself, a wrapper that composes its parts, or, for a
/// Recomputed, the object for the wrapped block. The block must outlive it.
/// @{
template <class Block>
requires(!detail::Composed<Block>) const Block& staged(const Block& block) { return block; }
template <class L>
StagedAttention<L> staged(const ResidualAttention<L>& attention) {
  return {attention};
}
template <class L>
StagedTransformerBlock<L> staged(const TransformerBlock<L>& block) {
  return {block};
}
template <class Block, class L>
decltype(auto) staged(const Recomputed<Block, L>& block) {
  return staged(block.block);
}
template <class Block>
using StagedOf = std::remove_cvref_t<decltype(staged(std::declval<const Block&>()))>;
/// @}

/// Whether every kind of a block defines its stages.
template <class Block, class L>
inline constexpr bool all_kinds_are_staged = StagedBlock<StagedOf<Block>, L>;
template <class... Kinds, class L>
inline constexpr bool all_kinds_are_staged<OneOf<Kinds...>, L> = (... && StagedBlock<StagedOf<Kinds>, L>);

/// Whether a block's backward first recomputes the tensors that its forward did not save: it repeats all stages, ending
/// with `after_again`.
/// @{
template <class Block>
bool replays(const Block&) {
  return false;
}
template <class Block, class L>
bool replays(const Recomputed<Block, L>& block) {
  return block.on;
}
/// @}

/// All stages of a Llama, which are compiled into the library, like the modules of tessera/fsdp/nn/instances.hpp. `how`
/// is `extern template` or `template`.
#define FSDP_SEQUENCE_INSTANCES(how, ...)  \
  how struct StagedAttention<__VA_ARGS__>; \
  how struct StagedTransformerBlock<__VA_ARGS__>;

FSDP_SEQUENCE_INSTANCES(extern template, CpuFp32)
FSDP_SEQUENCE_INSTANCES(extern template, CpuBf16)
FSDP_SEQUENCE_INSTANCES(extern template, MetaFp32)
FSDP_SEQUENCE_INSTANCES(extern template, MetaBf16)

}  // namespace fsdp::nn

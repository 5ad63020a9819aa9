// SPDX-License-Identifier: Apache-2.0
/// @file
/// Activation checkpointing: a block that saves only its input and recomputes the rest in backward.
///
/// Source: Chen et al. 2016. `replay` recomputes what the block saves, but not its output: the block's last operations,
/// whose results backward does not read, are not repeated. A tiled MLP that recomputes in backward anyway is not
/// repeated either. The replay runs inside backward, on the weights that were gathered for backward.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/nn/module.hpp>

namespace fsdp::nn {

/// A module that can refill its Saved from its input, without computing the output.
template <class B, class L>
concept Replayable = BlockModule<B, L> &&
    requires(const B block, Context<L>& context, const typename B::Shared& shared, const typename B::Weights& weights,
             typename B::Saved& saved, Tensor<const typename L::Compute> x) {
  block.replay(context, shared, weights, saved, x);
};

/// A block that saves only its input; its backward calls the block's `replay` first. It has the block's member types.
///
/// It has no base ModuleTypes<L, Block::template FieldsOf>: g++ treats that as the same type as the block's base, and
/// clang does not (CWG 1286). Two bases of the same type may not share an address, so the compilers would disagree on
/// the offset of `block`, for example between a library and a program.
template <class Block, class L>
struct Recomputed {
  using Compute = typename L::Compute;
  using Accumulate = typename L::Accumulate;
  template <class V>
  using FieldsOf = typename Block::template FieldsOf<V>;
  using Parameters = typename Block::Parameters;
  using Weights = typename Block::Weights;
  using Gradients = typename Block::Gradients;
  static constexpr std::size_t parameter_count = Block::parameter_count;
  using Shared = typename Block::Shared;
  using End = typename L::Arena::End;
  static_assert(Replayable<Block, L>,
                "fsdp: Recomputed makes a block's activations again by its replay(context, shared, weights, saved, x), "
                "which this block lacks; see tessera/fsdp/nn/transformer_block.hpp");

  using Wrapped = Block;  ///< the block that saves only its input
  Block block;
  bool on = true;  ///< if false, the block saves and computes as without this wrapper

  struct Saved {
    Tensor<const Compute> x;        // [T, H]
    typename Block::Saved forward;  ///< valid only if `on` is false
  };

  Parameters parameters() const { return block.parameters(); }

  /// Returns the block's tiling plan, if the block has one.
  tiling::TilePlan plan(Context<L>& context) const requires requires { block.plan(context); }
  { return block.plan(context); }

  void forward(Context<L>& context, const Shared& shared, const Weights& weights, Saved& saved, Tensor<const Compute> x,
               Tensor<Compute> y) const {
    saved.x = x;
    const auto mark = context.arena.mark(End::low);
    block.forward(context, shared, weights, saved.forward, x, y);
    if (on) context.arena.release(End::low, mark);
  }

  std::int64_t cache_columns() const requires CachingBlock<Block, L> { return block.cache_columns(); }
  void extend(Context<L>& context, const Shared& shared, const Weights& weights, Tensor<Compute> cache,
              Tensor<const Compute> x, Tensor<Compute> y) const requires CachingBlock<Block, L> {
    block.extend(context, shared, weights, cache, x, y);
  }

  void backward(Context<L>& context, const Shared& shared, const Weights& weights, const Gradients& gradients,
                const Saved& saved, Tensor<Compute> dy) const {
    if (!on) return backward_of_block(context, shared, weights, gradients, saved.forward, dy);
    const auto mark = context.arena.mark(End::low);
    typename Block::Saved again;
    block.replay(context, shared, weights, again, saved.x);
    backward_of_block(context, shared, weights, gradients, again, dy);
    context.arena.release(End::low, mark);
  }

 private:
  /// Calls the block's backward, with or without weights. Weights are always gathered, since the replay reads them.
  void backward_of_block(Context<L>& context, const Shared& shared, const Weights& weights, const Gradients& gradients,
                         const typename Block::Saved& saved, Tensor<Compute> dy) const {
    if constexpr (BlockWithoutWeightsInBackward<Block, L>)
      block.backward(context, shared, gradients, saved, dy);
    else
      block.backward(context, shared, weights, gradients, saved, dy);
  }
};

}  // namespace fsdp::nn

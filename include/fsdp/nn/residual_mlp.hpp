// SPDX-License-Identifier: Apache-2.0
/// @file
/// The second half of a transformer block: x + mlp(norm(x)), tile by tile.
///
/// Saved for backward: the input, and gate and up of kept tiles. The normalised input is made again.
#pragma once

#include <cstdint>

#include <fsdp/core/tensor.hpp>
#include <fsdp/nn/module.hpp>
#include <fsdp/nn/swiglu_mlp.hpp>

namespace fsdp::nn {

template <class V>
struct ResidualMlpFields {
  V norm;  // [H]
  SwiGluFields<V> mlp;
};

/// x + mlp(rms_norm(x)), tile by tile: of a [T, H] only the stream itself is kept.
template <class L>
struct ResidualMlp : ModuleTypes<L, ResidualMlpFields> {
  using Types = ModuleTypes<L, ResidualMlpFields>;
  using typename Types::Compute;
  using typename Types::Gradients;
  using typename Types::Parameters;
  using typename Types::Weights;
  using Device = typename L::Device;
  using Tile = SwiGluTile<L>;

  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  float eps = 1e-5f;

  struct Saved {
    Tensor<const Compute> x;  // [T, H]
    Tensor<float> rstd;       // [T]
    Tensor<Compute> kept;     // [kept tokens, 2 I]
  };

  Parameters parameters() const {
    return {{"post_attention_layernorm.weight", {hidden}, Initial::ones},
            SwiGluMlp<L>{{}, hidden, intermediate}.parameters()};
  }

  tiling::TilePlan plan(const Context<L>& context) const {
    return context.tiling.plan(swiglu_problem<L>(context.tokens(), intermediate, hidden));
  }

  void forward(Context<L>& context, const Weights& weights, Saved& saved, Tensor<const Compute> x,
               Tensor<Compute> y) const {
    const tiling::TilePlan tiles = plan(context);
    saved = {.x = x,
             .rstd = context.template save<float>({context.tokens()}),
             .kept = save_kept<L>(context, tiles, 2 * intermediate)};
    Device::template copy<Compute, Compute>(context.stream, x, y);
    std::int64_t kept = 0;
    for (const tiling::Tile& tile : tiles.tiles) {
      typename L::Frame frame(context.arena);
      const std::int64_t t = tile.tokens();
      const auto gate_up = tile.kept ? saved.kept.slice(kept, kept + t)
                                     : frame.template allocate<Compute>({t, 2 * intermediate});  // [t, 2 I]
      kept += tile.kept ? t : 0;
      {
        typename L::Frame inner(context.arena);
        Tile::expand(context, weights.mlp, normalise(context, weights, saved, tile, inner), gate_up);
      }
      const auto h = tile.kept ? frame.template allocate<Compute>({t, intermediate}) : Tile::gate(gate_up);  // [t, I]
      Tile::contract(context, weights.mlp, gate_up, h, y.slice(tile.begin, tile.end), Write::accumulate);
    }
  }

  void backward(Context<L>& context, const Weights& weights, const Gradients& gradients, const Saved& saved,
                Tensor<Compute> dy) const {
    std::int64_t kept = 0;
    for (const tiling::Tile& tile : plan(context).tiles) {
      typename L::Frame frame(context.arena);
      const std::int64_t t = tile.tokens();
      const auto normed = normalise(context, weights, saved, tile, frame);  // [t, H], then its gradient
      const auto gate_up = tile.kept ? saved.kept.slice(kept, kept + t)
                                     : frame.template allocate<Compute>({t, 2 * intermediate});  // [t, 2 I]
      const auto dh = frame.template allocate<Compute>({t, intermediate});                       // [t, I]
      kept += tile.kept ? t : 0;
      if (!tile.kept) Tile::expand(context, weights.mlp, normed, gate_up);
      const auto d = dy.slice(tile.begin, tile.end);  // [t, H]
      Tile::backward(context, weights.mlp, gradients.mlp, normed, gate_up, dh, d, normed);
      Device::template rms_norm_backward<Compute>(context.stream, saved.x.slice(tile.begin, tile.end), weights.norm,
                                                  saved.rstd.slice(tile.begin, tile.end), normed, d, Write::accumulate,
                                                  gradients.norm.tensor, gradients.norm.next());
    }
  }

 private:
  Tensor<Compute> normalise(Context<L>& context, const Weights& weights, const Saved& saved, const tiling::Tile& tile,
                            typename L::Frame& frame) const {
    const auto normed = frame.template allocate<Compute>({tile.tokens(), hidden});
    Device::template rms_norm<Compute>(context.stream, saved.x.slice(tile.begin, tile.end), weights.norm, eps, normed,
                                       saved.rstd.slice(tile.begin, tile.end));
    return normed;
  }
};

}  // namespace fsdp::nn

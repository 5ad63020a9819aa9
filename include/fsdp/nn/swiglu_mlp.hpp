// SPDX-License-Identifier: Apache-2.0
/// @file
/// The SwiGLU MLP, down(silu(gate(x)) * up(x)), cut into tiles of tokens: alone, and as the second half of a
/// transformer block, x + mlp(norm(x)). Weights are gathered once for all tiles. The gate and up activations of kept
/// tiles are saved for backward, which recomputes them for the other tiles, and the normalised input. The down
/// projection is never recomputed.
#pragma once

#include <cstdint>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/plan_of.hpp>
#include <tessera/fsdp/nn/swiglu_tile.hpp>

namespace fsdp::nn {

/// The MLP alone: x [T, H] -> y [T, H]; backward writes dx over dy.
template <class L>
struct SwiGluMlp : ModuleTypes<L, SwiGluFields> {
  FSDP_MODULE_TYPES(L, SwiGluFields)
  using Tile = SwiGluTile<L>;

  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  SwiGluPaths paths = {};

  struct Saved {
    Tensor<const Compute> x;
    Tensor<Compute> kept;  // [kept tokens, 2 I]
  };

  Parameters parameters() const {
    return {{"mlp.gate_proj.weight", {intermediate, hidden}},
            {.name = "mlp.up_proj.weight", .shape = {intermediate, hidden}, .joins_previous = true},
            {"mlp.down_proj.weight", {hidden, intermediate}},
            low_rank_parameters<2>(paths.in,
                                   {{{"mlp.gate_proj.lora_A.weight", "mlp.gate_proj.lora_B.weight"},
                                     {"mlp.up_proj.lora_A.weight", "mlp.up_proj.lora_B.weight"}}},
                                   hidden, {intermediate, intermediate}),
            low_rank_parameters<1>(paths.down, {{{"mlp.down_proj.lora_A.weight", "mlp.down_proj.lora_B.weight"}}},
                                   intermediate, {hidden})};
  }

  /// Returns the sizes that the tiling policy plans with.
  tiling::Problem problem(std::int64_t tokens) const {
    return Tile::problem(tokens, hidden, intermediate, paths, 0, 1);
  }

  void forward(Context<L>& context, const Weights& weights, Saved& saved, Tensor<const Compute> x,
               Tensor<Compute> y) const {
    const tiling::TilePlan& tiles = plan_of(context, *this);
    saved = {x, Tile::save_kept(context, tiles, intermediate)};
    Tile::for_each(context, tiles, paths, weights, saved.kept, [&](const Tile& tile, typename L::Frame&) {
      tile.forward(tile.rows(x), tile.rows(y), Write::overwrite);
    });
  }

  void backward(Context<L>& context, const Weights& weights, const Gradients& gradients, const Saved& saved,
                Tensor<Compute> dy) const {
    Tile::for_each(context, plan_of(context, *this), paths, weights, saved.kept,
                   [&](const Tile& tile, typename L::Frame&) {
                     const auto d = tile.rows(dy);  // [t, H]
                     tile.backward(gradients, tile.rows(saved.x), d, d);
                   });
  }
};

/// A norm and the MLP's three projections.
template <class V>
struct ResidualMlpFields {
  V norm;  // [H]
  SwiGluFields<V> mlp;
};

/// x + mlp(rms_norm(x)), tile by tile. The only [T, H] tensor that is saved is the residual stream itself.
template <class L>
struct ResidualMlp : ModuleTypes<L, ResidualMlpFields> {
  FSDP_MODULE_TYPES(L, ResidualMlpFields)
  using Tile = SwiGluTile<L>;

  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  float eps = 1e-5f;
  std::int64_t repeats = 1;  ///< number of units whose kept tiles are alive at the same time: the model's blocks
  SwiGluPaths paths = {};

  struct Saved {
    Tensor<const Compute> x;  // [T, H]
    Tensor<float> rstd;       // [T]
    Tensor<Compute> kept;     // [kept tokens, 2 I]
  };

  Parameters parameters() const {
    return {norm_parameter("post_attention_layernorm.weight", hidden),
            SwiGluMlp<L>{{}, hidden, intermediate, paths}.parameters()};
  }

  /// Returns the sizes that the tiling policy plans with.
  tiling::Problem problem(std::int64_t tokens) const {
    return Tile::problem(tokens, hidden, intermediate, paths, hidden, repeats);
  }

  void forward(Context<L>& context, const Weights& weights, Saved& saved, Tensor<const Compute> x,
               Tensor<Compute> y) const {
    const tiling::TilePlan& tiles = plan_of(context, *this);
    saved = begin(context, tiles, x);
    context.enqueue(device::Copy<Compute>{.x = x, .y = y});
    Tile::for_each(context, tiles, paths, weights.mlp, saved.kept, [&](const Tile& tile, typename L::Frame& frame) {
      const auto normed = normalise(context, weights, saved, tile, frame);  // [t, H]
      tile.forward(normed, tile.rows(y), Write::accumulate);
    });
  }

  /// Recomputes the tensors that forward saves, without the output. Skips tiles that backward recomputes anyway.
  void replay(Context<L>& context, const Weights& weights, Saved& saved, Tensor<const Compute> x) const {
    const tiling::TilePlan& tiles = plan_of(context, *this);
    saved = begin(context, tiles, x);
    Tile::for_each(context, tiles, paths, weights.mlp, saved.kept, [&](const Tile& tile, typename L::Frame& frame) {
      if (tile.kept()) tile.replay(normalise(context, weights, saved, tile, frame));
    });
  }

  void backward(Context<L>& context, const Weights& weights, const Gradients& gradients, const Saved& saved,
                Tensor<Compute> dy) const {
    const tiling::TilePlan& tiles = plan_of(context, *this);
    Tile::for_each(context, tiles, paths, weights.mlp, saved.kept, [&](const Tile& tile, typename L::Frame& frame) {
      const auto normed = normalise(context, weights, saved, tile, frame);  // [t, H], then its gradient
      const auto d = tile.rows(dy);                                         // [t, H]
      tile.backward(gradients.mlp, normed, d, normed);
      context.enqueue(weights.norm, device::RmsNormBackward<Compute>{.x = tile.rows(saved.x),
                                                                     .rstd = tile.rows(saved.rstd),
                                                                     .dy = normed,
                                                                     .dx = d,
                                                                     .dx_write = Write::accumulate,
                                                                     .dw = gradients.norm.tensor,
                                                                     .dw_write = gradients.norm.next()});
    });
  }

 private:
  Saved begin(Context<L>& context, const tiling::TilePlan& tiles, Tensor<const Compute> x) const {
    return {.x = x,
            .rstd = context.template save<float>({context.tokens()}),
            .kept = Tile::save_kept(context, tiles, intermediate)};
  }
  Tensor<Compute> normalise(Context<L>& context, const Weights& weights, const Saved& saved, const Tile& tile,
                            typename L::Frame& frame) const {
    const auto x = tile.rows(saved.x);                                // [t, H]
    const auto normed = frame.template allocate<Compute>(x.shape());  // [t, H]
    context.enqueue(weights.norm,
                    device::RmsNorm<Compute>{.x = x, .eps = eps, .y = normed, .rstd = tile.rows(saved.rstd)});
    return normed;
  }
};

}  // namespace fsdp::nn

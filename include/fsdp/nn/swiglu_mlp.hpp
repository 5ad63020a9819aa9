// SPDX-License-Identifier: Apache-2.0
/// @file
/// The SwiGLU MLP, down(silu(gate(x)) * up(x)), cut into tiles of tokens.
///
/// Weights are gathered once for all tiles. The gate and up activations of kept tiles are saved for backward, which
/// recomputes them for the other tiles. The down projection is never recomputed.
#pragma once

#include <cstdint>

#include <tessera/fsdp/core/tensor.hpp>
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

}  // namespace fsdp::nn

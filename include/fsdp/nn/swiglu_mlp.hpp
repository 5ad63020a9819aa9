// SPDX-License-Identifier: Apache-2.0
/// @file
/// The SwiGLU MLP, down(silu(gate(x)) * up(x)), cut into tiles of tokens.
///
/// Weights are gathered once for all tiles. A kept tile's gate and up stay for backward; the others are recomputed
/// there, never down. Backward runs in place on three tile buffers: gate, up and dh become dgate, dup and h (DESIGN,
/// "Tiling").
#pragma once

#include <array>
#include <cstdint>

#include <fsdp/core/tensor.hpp>
#include <fsdp/nn/module.hpp>
#include <fsdp/nn/projection.hpp>
#include <tiling/policies.hpp>

namespace fsdp::nn {

template <class V>
struct SwiGluFields {
  V gate, up, down;  // [I, H], [I, H], [H, I]
};

/// One tile of the MLP on any input; the module below and the block's MLP are loops over it.
template <class L>
struct SwiGluTile {
  using Device = typename L::Device;
  using Compute = typename L::Compute;
  using Weights = SwiGluFields<Tensor<const Compute>>;
  using Gradients = SwiGluFields<GradientView<typename L::Accumulate>>;

  static Tensor<Compute> gate(Tensor<Compute> gate_up) { return gate_up.slice_columns(0, gate_up.columns() / 2); }
  static Tensor<Compute> up(Tensor<Compute> gate_up) {
    return gate_up.slice_columns(gate_up.columns() / 2, gate_up.columns());
  }

  /// gate_up = [gate(x), up(x)].
  static void expand(Context<L>& context, const Weights& weights, Tensor<const Compute> x, Tensor<Compute> gate_up) {
    project<L, 2>(context, x, {weights.gate, weights.up}, gate_up);
    context.progress();
  }

  /// y (+)= down(h), where h [t, I] is made of gate_up [t, 2 I] and may be its gate half.
  static void contract(Context<L>& context, const Weights& weights, Tensor<Compute> gate_up, Tensor<Compute> h,
                       Tensor<Compute> y, Write write) {
    Device::template swiglu<Compute>(context.stream, gate(gate_up), up(gate_up), h);
    Device::template matmul<Compute, Compute>(context.stream, h, device::transposed(weights.down), y, write);
    context.progress();
  }

  /// dx = gradient of x, written after dy was last read: dx may be dy. gate_up is used up; dh is [t, I] workspace.
  static void backward(Context<L>& context, const Weights& weights, const Gradients& gradients, Tensor<const Compute> x,
                       Tensor<Compute> gate_up, Tensor<Compute> dh, Tensor<const Compute> dy, Tensor<Compute> dx) {
    Device::template matmul<Compute, Compute>(context.stream, dy, weights.down, dh);
    context.progress();
    Device::template swiglu_backward<Compute>(context.stream, gate(gate_up), up(gate_up), dh);
    project_backward_weight<L, 1>(context, dy, dh, {gradients.down});
    context.progress();
    project_backward_weight<L, 2>(context, gate_up, x, {gradients.gate, gradients.up});
    context.progress();
    project_backward_input<L, 2>(context, gate_up, {weights.gate, weights.up}, dx);
    context.progress();
  }
};

/// What a plan may look at: a kept token costs gate and up; a tile costs gate, up and h, and `extra` columns more.
template <class L>
tiling::Problem swiglu_problem(std::int64_t tokens, std::int64_t intermediate, std::int64_t extra_columns = 0) {
  const auto size = static_cast<std::int64_t>(sizeof(typename L::Compute));
  return {.tokens = tokens,
          .kept_bytes_per_token = 2 * intermediate * size,
          .tile_bytes_per_token = (3 * intermediate + extra_columns) * size};
}

/// Gate and up of the kept tiles, one after the other.
template <class L>
Tensor<typename L::Compute> save_kept(Context<L>& context, const tiling::TilePlan& plan, std::int64_t columns) {
  std::int64_t tokens = 0;
  for (const tiling::Tile& tile : plan.tiles) tokens += tile.kept ? tile.tokens() : 0;
  return context.template save<typename L::Compute>({tokens, columns});  // [kept tokens, columns]
}

/// The MLP alone: x [T, H] -> y [T, H]; backward writes dx over dy.
template <class L>
struct SwiGluMlp : ModuleTypes<L, SwiGluFields> {
  using Types = ModuleTypes<L, SwiGluFields>;
  using typename Types::Compute;
  using typename Types::Gradients;
  using typename Types::Parameters;
  using typename Types::Weights;
  using Tile = SwiGluTile<L>;

  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;

  struct Saved {
    Tensor<const Compute> x;
    Tensor<Compute> kept;  // [kept tokens, 2 I]
  };

  Parameters parameters() const {
    return {{"mlp.gate_proj.weight", {intermediate, hidden}},
            {"mlp.up_proj.weight", {intermediate, hidden}},
            {"mlp.down_proj.weight", {hidden, intermediate}}};
  }

  tiling::TilePlan plan(const Context<L>& context) const {
    return context.tiling.plan(swiglu_problem<L>(context.tokens(), intermediate));
  }

  void forward(Context<L>& context, const Weights& weights, Saved& saved, Tensor<const Compute> x,
               Tensor<Compute> y) const {
    const tiling::TilePlan tiles = plan(context);
    saved = {x, save_kept<L>(context, tiles, 2 * intermediate)};
    std::int64_t kept = 0;
    for (const tiling::Tile& tile : tiles.tiles) {
      typename L::Frame frame(context.arena);
      const std::int64_t t = tile.tokens();
      const auto gate_up = tile.kept ? saved.kept.slice(kept, kept + t)
                                     : frame.template allocate<Compute>({t, 2 * intermediate});              // [t, 2 I]
      const auto h = tile.kept ? frame.template allocate<Compute>({t, intermediate}) : Tile::gate(gate_up);  // [t, I]
      kept += tile.kept ? t : 0;
      Tile::expand(context, weights, x.slice(tile.begin, tile.end), gate_up);
      Tile::contract(context, weights, gate_up, h, y.slice(tile.begin, tile.end), Write::overwrite);
    }
  }

  void backward(Context<L>& context, const Weights& weights, const Gradients& gradients, const Saved& saved,
                Tensor<Compute> dy) const {
    std::int64_t kept = 0;
    for (const tiling::Tile& tile : plan(context).tiles) {
      typename L::Frame frame(context.arena);
      const std::int64_t t = tile.tokens();
      const auto x = saved.x.slice(tile.begin, tile.end);  // [t, H]
      const auto gate_up = tile.kept ? saved.kept.slice(kept, kept + t)
                                     : frame.template allocate<Compute>({t, 2 * intermediate});  // [t, 2 I]
      const auto dh = frame.template allocate<Compute>({t, intermediate});                       // [t, I]
      kept += tile.kept ? t : 0;
      if (!tile.kept) Tile::expand(context, weights, x, gate_up);
      const auto d = dy.slice(tile.begin, tile.end);
      Tile::backward(context, weights, gradients, x, gate_up, dh, d, d);
    }
  }
};

}  // namespace fsdp::nn

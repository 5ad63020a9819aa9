// SPDX-License-Identifier: Apache-2.0
/// @file
/// The second half of a GPT-2 block: x + mlp(layer_norm(x)), tile by tile.
///
/// Saved for backward: the input and the norm's statistics; for kept tiles also GELU's input. The rest is recomputed.
#pragma once

#include <cstdint>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/plan_of.hpp>

#include "linear.hpp"

namespace gpt2 {

template <class V>
struct MlpFields {
  Pair<V> norm, up, down;  // [H], [H, I], [I, H]
};

template <class L>
struct Mlp : nn::ModuleTypes<L, MlpFields> {
  using Types = nn::ModuleTypes<L, MlpFields>;
  using typename Types::Compute;
  using typename Types::Gradients;
  using typename Types::Parameters;
  using typename Types::Weights;

  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  float eps = 1e-5f;
  double out_deviation = 0.02;
  std::int64_t repeats = 1;  ///< number of blocks whose kept tiles exist at the same time

  struct Saved {
    Tensor<const Compute> x;  // [T, H]
    Statistics statistics;    // [T]
    Tensor<Compute> kept;     // [kept tokens, I]
  };

  Parameters parameters() const {
    return {{{"ln_2.weight", {hidden}, nn::Initial::ones}, {"ln_2.bias", {hidden}, nn::Initial::zeros}},
            {{"mlp.c_fc.weight", {hidden, intermediate}}, {"mlp.c_fc.bias", {intermediate}, nn::Initial::zeros}},
            {{"mlp.c_proj.weight", {intermediate, hidden}, nn::Initial::normal(out_deviation)},
             {"mlp.c_proj.bias", {hidden}, nn::Initial::zeros}}};
  }

  /// Each kept token stores GELU's input. A tile stores GELU's input and output and the norm's output.
  fsdp::tiling::Problem problem(std::int64_t tokens) const {
    constexpr auto size = std::int64_t{sizeof(Compute)};
    constexpr auto wide = std::int64_t{sizeof(typename L::Accumulate)};
    return {.tokens = tokens,
            .kept_bytes_per_token = intermediate * size,
            .tile_bytes_per_token = (hidden + 2 * intermediate) * size,
            .recomputed_flops_per_token = 2 * hidden * intermediate,
            .traffic_per_tile = 2 * hidden * intermediate * (3 * size + 2 * wide),
            .repeats = repeats};
  }

  void forward(nn::Context<L>& context, const Weights& weights, Saved& saved, Tensor<const Compute> x,
               Tensor<Compute> y) const {
    const fsdp::tiling::TilePlan& plan = nn::plan_of(context, *this);
    saved = {.x = x,
             .statistics = {context.template save<float>({x.rows()}), context.template save<float>({x.rows()})},
             .kept = context.template save<Compute>({plan.kept_tokens(), intermediate})};
    device::enqueue(context.stream, device::Copy<Compute>{.x = x, .y = y});
    for_each_tile(context, plan, saved, [&](const Tile& tile) {
      expand(context, weights, tile);
      device::enqueue(context.stream, Gelu<Compute>{.x = tile.up, .y = tile.h});
      linear(context, weights.down, tile.h, tile.rows(y), Write::accumulate);
    });
  }

  void backward(nn::Context<L>& context, const Weights& weights, const Gradients& gradients, const Saved& saved,
                Tensor<Compute> dy) const {
    for_each_tile(context, nn::plan_of(context, *this), saved, [&](const Tile& tile) {
      const Tensor<Compute> d = tile.rows(dy);  // [t, H]
      if (tile.kept)
        normalise(context, weights.norm, eps, tile.x, tile.normed, tile.statistics);
      else
        expand(context, weights, tile);
      device::enqueue(context.stream, Gelu<Compute>{.x = tile.up, .y = tile.h});
      linear_backward_weights(context, gradients.down, tile.h, d);
      linear_backward_input(context, weights.down, d, tile.h);  // overwrites h with its gradient
      device::enqueue(context.stream, GeluBackward<Compute>{.x = tile.up, .d = tile.h});
      linear_backward_weights(context, gradients.up, tile.normed, tile.h);
      linear_backward_input(context, weights.up, tile.h, tile.normed);  // overwrites normed with its gradient
      normalise_backward(context, weights.norm, gradients.norm, tile.x, tile.statistics, tile.normed, d,
                         Write::accumulate);
      context.progress();
    });
  }

 private:
  /// Rows [begin, end) of a tile, and its memory.
  struct Tile {
    std::int64_t begin = 0, end = 0;
    bool kept = false;
    Tensor<const Compute> x;  // [t, H]
    Statistics statistics;    // [t]
    Tensor<Compute> normed;   // [t, H]
    Tensor<Compute> up;       // [t, I]
    Tensor<Compute> h;        // [t, I]

    template <class T>
    Tensor<T> rows(Tensor<T> all) const {
      return all.slice(begin, end);
    }
  };

  template <class Body>
  void for_each_tile(nn::Context<L>& context, const fsdp::tiling::TilePlan& plan, const Saved& saved,
                     const Body& body) const {
    std::int64_t row = 0;
    for (const fsdp::tiling::Tile& each : plan.tiles) {
      typename L::Frame frame(context.arena);
      const std::int64_t tokens = each.tokens();
      Tile tile{.begin = each.begin,
                .end = each.end,
                .kept = each.kept,
                .x = saved.x.slice(each.begin, each.end),
                .statistics = saved.statistics.slice(each.begin, each.end),
                .normed = frame.template allocate<Compute>({tokens, hidden}),
                .up = {},
                .h = {}};
      tile.up =
          each.kept ? saved.kept.slice(row, row + tokens) : frame.template allocate<Compute>({tokens, intermediate});
      tile.h = frame.template allocate<Compute>({tokens, intermediate});
      if (each.kept) row += tokens;
      body(tile);
    }
  }

  /// Computes GELU's input.
  void expand(nn::Context<L>& context, const Weights& weights, const Tile& tile) const {
    normalise(context, weights.norm, eps, tile.x, tile.normed, tile.statistics);
    linear(context, weights.up, tile.normed, tile.up);
  }
};

}  // namespace gpt2

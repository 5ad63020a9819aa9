// SPDX-License-Identifier: Apache-2.0
/// @file
/// GPT-2's head: final norm, projection to the vocabulary (tied to the embedding), cross-entropy; tile by tile.
///
/// Loss and gradients are computed together, so that logits exist for only one tile at a time. Tokens without a target
/// cost as much as others.
#pragma once

#include <cstdint>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/plan_of.hpp>
#include <tessera/fsdp/nn/projection.hpp>

#include "linear.hpp"

namespace gpt2 {

template <class V>
struct HeadFields {
  Pair<V> norm;  // [H]
  V table;       // [V, H]
};

template <class L>
struct Head : nn::ModuleTypes<L, HeadFields> {
  using Types = nn::ModuleTypes<L, HeadFields>;
  using typename Types::Compute;
  using typename Types::Gradients;
  using typename Types::Parameters;
  using typename Types::Weights;

  std::int64_t vocabulary = 0;
  std::int64_t hidden = 0;
  float eps = 1e-5f;

  Parameters parameters() const {
    return {{{"/ln_f.weight", {hidden}, nn::Initial::ones}, {"/ln_f.bias", {hidden}, nn::Initial::zeros}},
            {.name = "/wte.weight", .shape = {vocabulary, hidden}, .role = nn::Role::table}};
  }

  /// Adds the sum of the tokens' losses to loss[0]. dx and gradients are the derivatives of that sum, multiplied by
  /// scale; dx is 0 for tokens with a negative target.
  void loss(nn::Context<L>& context, const Weights& weights, const Gradients& gradients, Tensor<const Compute> x,
            const nn::Targets& targets, float scale, Tensor<Compute> dx, Tensor<double> loss) const {
    for_each_tile(context, weights, x, [&](const Tile& tile) {
      const nn::RowRuns valid = valid_rows(tile, targets);
      for (const nn::RowRun& gap : nn::rows_between(valid, tile.logits.rows()))
        device::enqueue(context.stream,
                        device::Fill<Compute>{.y = tile.logits.slice(gap.begin, gap.end), .value = 0.0f});
      for (const nn::RowRun& run : valid)
        device::enqueue(context.stream, device::CrossEntropy<Compute>{.logits = tile.logits.slice(run.begin, run.end),
                                                                      .targets = tile.rows(targets.device, run),
                                                                      .scale = scale,
                                                                      .loss = loss});
      nn::project_backward_weight<L, 1>(context, {tile.logits}, tile.normed, {gradients.table});
      context.progress();
      nn::project_backward_input<L, 1, Compute>(context, {tile.logits}, {weights.table}, tile.normed);
      normalise_backward(context, weights.norm, gradients.norm, x.slice(tile.begin, tile.end), tile.statistics,
                         tile.normed, dx.slice(tile.begin, tile.end), Write::overwrite);
      context.progress();
    });
  }

  void loss_only(nn::Context<L>& context, const Weights& weights, Tensor<const Compute> x, const nn::Targets& targets,
                 Tensor<double> loss) const {
    for_each_tile(context, weights, x, [&](const Tile& tile) {
      for (const nn::RowRun& run : valid_rows(tile, targets))
        device::enqueue(context.stream,
                        device::CrossEntropyLoss<Compute>{.logits = tile.logits.slice(run.begin, run.end),
                                                          .targets = tile.rows(targets.device, run),
                                                          .loss = loss});
    });
  }

  std::int64_t logits_columns() const { return vocabulary; }
  /// Computes all logits [T, V] at once: for generation and tests, where T is small.
  void logits(nn::Context<L>& context, const Weights& weights, Tensor<const Compute> x, Tensor<Compute> logits) const {
    typename L::Frame frame(context.arena);
    const auto normed = frame.template allocate<Compute>({x.rows(), hidden});  // [T, H]
    const Statistics statistics{frame.template allocate<float>({x.rows()}), frame.template allocate<float>({x.rows()})};
    normalise(context, weights.norm, eps, x, normed, statistics);
    nn::project<L, 1>(context, normed, {weights.table}, {logits});
  }

  /// Activations are not kept for any tile.
  fsdp::tiling::Problem problem(std::int64_t tokens) const {
    constexpr auto size = std::int64_t{sizeof(Compute)};
    constexpr auto wide = std::int64_t{sizeof(typename L::Accumulate)};
    return {.tokens = tokens,
            .tile_bytes_per_token = (hidden + vocabulary) * size + 2 * std::int64_t{sizeof(float)},
            .traffic_per_tile = vocabulary * hidden * (2 * size + 2 * wide)};
  }
  /// Returns the tiling plan, which is printed in the description of a run.
  fsdp::tiling::TilePlan plan(nn::Context<L>& context) const { return nn::plan_of(context, *this); }

 private:
  /// Rows [begin, end) of a tile, and its memory.
  struct Tile {
    std::int64_t begin = 0, end = 0;
    Statistics statistics;   // [t]
    Tensor<Compute> normed;  // [t, H], then its gradient
    Tensor<Compute> logits;  // [t, V], then their gradient

    /// Returns the entries of a run of rows, from a list for all rows. The rows of `run` are relative to the tile.
    Tensor<const std::int32_t> rows(Tensor<const std::int32_t> all, const nn::RowRun& run) const {
      return all.slice(begin + run.begin, begin + run.end);
    }
  };
  static nn::RowRuns valid_rows(const Tile& tile, const nn::Targets& targets) {
    return nn::valid_rows(targets.host.slice(tile.begin, tile.end), L::Device::counts_only);
  }

  /// Computes each tile's logits and calls body(tile).
  template <class Body>
  void for_each_tile(nn::Context<L>& context, const Weights& weights, Tensor<const Compute> x, const Body& body) const {
    for (const fsdp::tiling::Tile& each : nn::plan_of(context, *this).tiles) {
      typename L::Frame frame(context.arena);
      const Tile tile{.begin = each.begin,
                      .end = each.end,
                      .statistics = {frame.template allocate<float>({each.tokens()}),
                                     frame.template allocate<float>({each.tokens()})},
                      .normed = frame.template allocate<Compute>({each.tokens(), hidden}),
                      .logits = frame.template allocate<Compute>({each.tokens(), vocabulary})};
      normalise(context, weights.norm, eps, x.slice(each.begin, each.end), tile.normed, tile.statistics);
      nn::project<L, 1>(context, tile.normed, {weights.table}, {tile.logits});
      context.progress();
      body(tile);
    }
  }
};

}  // namespace gpt2

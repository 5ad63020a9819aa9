// SPDX-License-Identifier: Apache-2.0
/// @file
/// The head of a language model: final norm, vocabulary projection and cross-entropy, tile by tile.
///
/// Loss and gradients are made in one go, so that logits exist for one tile at a time and never as [tokens,
/// vocabulary].
#pragma once

#include <cstdint>

#include <fsdp/core/tensor.hpp>
#include <fsdp/nn/module.hpp>
#include <fsdp/nn/projection.hpp>
#include <tiling/policies.hpp>

namespace fsdp::nn {

template <class V>
struct LossHeadFields {
  V norm, weight;  // [H], [V, H]
};

template <class L>
struct LossHead : ModuleTypes<L, LossHeadFields> {
  using Types = ModuleTypes<L, LossHeadFields>;
  using typename Types::Compute;
  using typename Types::Gradients;
  using typename Types::Parameters;
  using typename Types::Weights;
  using Device = typename L::Device;

  std::int64_t vocabulary = 0;
  std::int64_t hidden = 0;
  float eps = 1e-5f;
  bool tied = false;  ///< the weight is the embedding's

  Parameters parameters() const {
    return {{"/model.norm.weight", {hidden}, Initial::ones},
            {tied ? "/model.embed_tokens.weight" : "/lm_head.weight", {vocabulary, hidden}}};
  }

  /// Adds the sum of the tokens' negative log likelihoods to loss[0]; dx and the weights' gradients are those of
  /// scale * that sum. Negative targets are ignored.
  void loss(Context<L>& context, const Weights& weights, const Gradients& gradients, Tensor<const Compute> x,
            Tensor<const std::int32_t> targets, float scale, Tensor<Compute> dx, Tensor<double> loss) const {
    for (const tiling::Tile& tile : plan(context).tiles) {
      typename L::Frame frame(context.arena);
      Hidden normed = normalise(context, weights, x, tile, frame);
      const auto logits = frame.template allocate<Compute>({tile.tokens(), vocabulary});  // [t, V], then their gradient
      project<L, 1>(context, normed.y, {weights.weight}, logits);
      context.progress();
      Device::template cross_entropy<Compute>(context.stream, logits, targets.slice(tile.begin, tile.end), scale, loss);
      project_backward_weight<L, 1>(context, logits, normed.y, {gradients.weight});
      context.progress();
      project_backward_input<L, 1>(context, logits, {weights.weight}, normed.y);
      context.progress();
      Device::template rms_norm_backward<Compute>(context.stream, normed.x, weights.norm, normed.rstd, normed.y,
                                                  dx.slice(tile.begin, tile.end), Write::overwrite,
                                                  gradients.norm.tensor, gradients.norm.next());
    }
  }

  void loss_only(Context<L>& context, const Weights& weights, Tensor<const Compute> x,
                 Tensor<const std::int32_t> targets, Tensor<double> loss) const {
    for (const tiling::Tile& tile : plan(context).tiles) {
      typename L::Frame frame(context.arena);
      const auto logits = frame.template allocate<Compute>({tile.tokens(), vocabulary});  // [t, V]
      project<L, 1>(context, normalise(context, weights, x, tile, frame).y, {weights.weight}, logits);
      Device::template cross_entropy_loss<Compute>(context.stream, logits, targets.slice(tile.begin, tile.end), loss);
      context.progress();
    }
  }

  /// All logits [T, V]: for generation and tests, where T is small.
  void logits(Context<L>& context, const Weights& weights, Tensor<const Compute> x, Tensor<Compute> logits) const {
    typename L::Frame frame(context.arena);
    const tiling::Tile all{.begin = 0, .end = x.rows()};
    project<L, 1>(context, normalise(context, weights, x, all, frame).y, {weights.weight}, logits);
  }

  tiling::TilePlan plan(const Context<L>& context) const {
    return context.tiling.plan(
        {.tokens = context.tokens(),
         .kept_bytes_per_token = 0,
         .tile_bytes_per_token = (vocabulary + hidden) * static_cast<std::int64_t>(sizeof(Compute))});
  }

 private:
  struct Hidden {
    Tensor<const Compute> x;  // [t, H]
    Tensor<Compute> y;        // [t, H], normalised
    Tensor<float> rstd;       // [t]
  };
  Hidden normalise(Context<L>& context, const Weights& weights, Tensor<const Compute> x, const tiling::Tile& tile,
                   typename L::Frame& frame) const {
    const Hidden hidden_tile{.x = x.slice(tile.begin, tile.end),
                             .y = frame.template allocate<Compute>({tile.tokens(), hidden}),
                             .rstd = frame.template allocate<float>({tile.tokens()})};
    Device::template rms_norm<Compute>(context.stream, hidden_tile.x, weights.norm, eps, hidden_tile.y,
                                       hidden_tile.rstd);
    return hidden_tile;
  }
};

}  // namespace fsdp::nn

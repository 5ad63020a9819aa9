// SPDX-License-Identifier: Apache-2.0
/// @file
/// The first half of a GPT-2 block: x + attention(layer_norm(x)).
///
/// Saved for backward: the input, the norm's statistics, q, k and v, attention's output and log-sum-exp. The normalised
/// input is recomputed.
#pragma once

#include <cstdint>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/module.hpp>

#include "linear.hpp"

namespace gpt2 {

template <class V>
struct AttentionFields {
  Pair<V> norm, qkv, out;  // [H], [H, 3 H], [H, H]
};

/// Causal attention; one matmul computes q, k and v. `out_deviation`: standard deviation of the output projection's
/// initial weights.
template <class L>
struct Attention : nn::ModuleTypes<L, AttentionFields> {
  using Types = nn::ModuleTypes<L, AttentionFields>;
  using typename Types::Compute;
  using typename Types::Gradients;
  using typename Types::Parameters;
  using typename Types::Weights;

  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  float eps = 1e-5f;
  double out_deviation = 0.02;

  struct Saved {
    Tensor<const Compute> x;  // [T, H]
    Statistics statistics;    // [T]
    Tensor<Compute> qkv;      // [T, 3 H]
    Tensor<Compute> out;      // [T, H]
    Tensor<float> lse;        // [sequences heads, S]
  };

  Parameters parameters() const {
    return {{{"ln_1.weight", {hidden}, nn::Initial::ones}, {"ln_1.bias", {hidden}, nn::Initial::zeros}},
            {{"attn.c_attn.weight", {hidden, 3 * hidden}}, {"attn.c_attn.bias", {3 * hidden}, nn::Initial::zeros}},
            {{"attn.c_proj.weight", {hidden, hidden}, nn::Initial::normal(out_deviation)},
             {"attn.c_proj.bias", {hidden}, nn::Initial::zeros}}};
  }

  void forward(nn::Context<L>& context, const Weights& weights, Saved& saved, Tensor<const Compute> x,
               Tensor<Compute> y) const {
    const std::int64_t tokens = context.tokens();
    saved = {.x = x,
             .statistics = {context.template save<float>({tokens}), context.template save<float>({tokens})},
             .qkv = context.template save<Compute>({tokens, 3 * hidden}),
             .out = context.template save<Compute>({tokens, hidden}),
             .lse = context.template save<float>({context.sequences * heads, context.sequence_length})};
    {
      typename L::Frame frame(context.arena);
      const auto normed = frame.template allocate<Compute>({tokens, hidden});  // [T, H]
      normalise(context, weights.norm, eps, x, normed, saved.statistics);
      linear(context, weights.qkv, normed, saved.qkv);
    }
    device::enqueue(context.stream, device::Attention<Compute>{.shape = problem(context),
                                                               .q = part(saved.qkv, 0),
                                                               .k = part(saved.qkv, 1),
                                                               .v = part(saved.qkv, 2),
                                                               .out = saved.out,
                                                               .lse = saved.lse});
    context.progress();
    device::enqueue(context.stream, device::Copy<Compute>{.x = x, .y = y});
    linear(context, weights.out, saved.out, y, Write::accumulate);
  }

  void backward(nn::Context<L>& context, const Weights& weights, const Gradients& gradients, const Saved& saved,
                Tensor<Compute> dy) const {
    const std::int64_t tokens = context.tokens();
    typename L::Frame frame(context.arena);
    const auto dqkv = frame.template allocate<Compute>({tokens, 3 * hidden});  // [T, 3 H]
    linear_backward_weights(context, gradients.out, saved.out, dy);
    {
      typename L::Frame inner(context.arena);
      const auto dout = inner.template allocate<Compute>({tokens, hidden});  // [T, H]
      linear_backward_input(context, weights.out, dy, dout);
      device::enqueue(context.stream, device::AttentionBackward<Compute>{.shape = problem(context),
                                                                         .q = part(saved.qkv, 0),
                                                                         .k = part(saved.qkv, 1),
                                                                         .v = part(saved.qkv, 2),
                                                                         .out = saved.out,
                                                                         .lse = saved.lse,
                                                                         .dout = dout,
                                                                         .dq = part(dqkv, 0),
                                                                         .dk = part(dqkv, 1),
                                                                         .dv = part(dqkv, 2)});
      context.progress();
    }
    const auto normed = frame.template allocate<Compute>({tokens, hidden});  // [T, H], then its gradient
    normalise(context, weights.norm, eps, saved.x, normed, saved.statistics);
    linear_backward_weights(context, gradients.qkv, normed, dqkv);
    linear_backward_input(context, weights.qkv, dqkv, normed);
    normalise_backward(context, weights.norm, gradients.norm, saved.x, saved.statistics, normed, dy, Write::accumulate);
    context.progress();
  }

 private:
  /// Returns q, k or v (index 0, 1 or 2) as a view of all three.
  template <class T>
  Tensor<T> part(Tensor<T> qkv, std::int64_t index) const {
    return qkv.slice_columns(index * hidden, (index + 1) * hidden);
  }
  device::AttentionShape problem(const nn::Context<L>& context) const {
    return {.sequences = context.sequences,
            .sequence_length = context.sequence_length,
            .heads = heads,
            .kv_heads = heads,
            .head_dim = hidden / heads,
            .documents = context.documents};
  }
};

}  // namespace gpt2

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The first half of a transformer block: x + attention(norm(x)).
///
/// Saved for backward: the input, rotated q and k with v, attention's output and log-sum-exp. The normalised input is
/// made again.
#pragma once

#include <cstdint>

#include <fsdp/core/tensor.hpp>
#include <fsdp/nn/module.hpp>
#include <fsdp/nn/projection.hpp>

namespace fsdp::nn {

template <class V>
struct AttentionFields {
  V norm, q, k, v, out;  // [H], [Hq d, H], [Hkv d, H], [Hkv d, H], [H, Hq d]
};

/// x + attention(rms_norm(x)): causal, grouped-query, rotary positions.
template <class L>
struct ResidualAttention : ModuleTypes<L, AttentionFields> {
  using Types = ModuleTypes<L, AttentionFields>;
  using typename Types::Compute;
  using typename Types::Gradients;
  using typename Types::Parameters;
  using typename Types::Weights;
  using Device = typename L::Device;

  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  float eps = 1e-5f;

  struct Saved {
    Tensor<const Compute> x;  // [T, H]
    Tensor<float> rstd;       // [T]
    Tensor<Compute> qkv;      // [T, (Hq + 2 Hkv) d]
    Tensor<Compute> out;      // [T, Hq d]
    Tensor<float> lse;        // [sequences Hq, S]
  };

  std::int64_t q_columns() const { return heads * head_dim; }
  std::int64_t kv_columns() const { return kv_heads * head_dim; }
  std::int64_t qkv_columns() const { return q_columns() + 2 * kv_columns(); }

  Parameters parameters() const {
    return {{"input_layernorm.weight", {hidden}, Initial::ones},
            {"self_attn.q_proj.weight", {q_columns(), hidden}},
            {"self_attn.k_proj.weight", {kv_columns(), hidden}},
            {"self_attn.v_proj.weight", {kv_columns(), hidden}},
            {"self_attn.o_proj.weight", {hidden, q_columns()}}};
  }

  void forward(Context<L>& context, const Weights& weights, Saved& saved, Tensor<const Compute> x,
               Tensor<Compute> y) const {
    const std::int64_t tokens = context.tokens();
    saved = {.x = x,
             .rstd = context.template save<float>({tokens}),
             .qkv = context.template save<Compute>({tokens, qkv_columns()}),
             .out = context.template save<Compute>({tokens, q_columns()}),
             .lse = context.template save<float>({context.sequences * heads, context.sequence_length})};
    {
      typename L::Frame frame(context.arena);
      const auto normed = frame.template allocate<Compute>({tokens, hidden});  // [T, H]
      Device::template rms_norm<Compute>(context.stream, x, weights.norm, eps, normed, saved.rstd);
      project<L, 3>(context, normed, {weights.q, weights.k, weights.v}, saved.qkv);
    }
    context.progress();
    Device::template rope<Compute>(context.stream, rotated(saved.qkv), context.rotary, device::Rotation::forward,
                                   context.documents);
    Device::template attention<Compute>(context.stream, problem(context), q(saved.qkv), k(saved.qkv), v(saved.qkv),
                                        saved.out, saved.lse);
    context.progress();
    Device::template copy<Compute, Compute>(context.stream, x, y);
    Device::template matmul<Compute, Compute>(context.stream, saved.out, device::transposed(weights.out), y,
                                              Write::accumulate);
    context.progress();
  }

  void backward(Context<L>& context, const Weights& weights, const Gradients& gradients, const Saved& saved,
                Tensor<Compute> dy) const {
    const std::int64_t tokens = context.tokens();
    typename L::Frame frame(context.arena);
    const auto dqkv = frame.template allocate<Compute>({tokens, qkv_columns()});  // [T, (Hq + 2 Hkv) d]
    project_backward_weight<L, 1>(context, dy, saved.out, {gradients.out});
    context.progress();
    {
      typename L::Frame inner(context.arena);
      const auto dout = inner.template allocate<Compute>({tokens, q_columns()});  // [T, Hq d]
      Device::template matmul<Compute, Compute>(context.stream, dy, weights.out, dout);
      context.progress();
      Device::template attention_backward<Compute>(context.stream, problem(context), q(saved.qkv), k(saved.qkv),
                                                   v(saved.qkv), saved.out, saved.lse, dout, q(dqkv), k(dqkv), v(dqkv));
    }
    context.progress();
    Device::template rope<Compute>(context.stream, rotated(dqkv), context.rotary, device::Rotation::backward,
                                   context.documents);
    const auto normed = frame.template allocate<Compute>({tokens, hidden});  // [T, H], then its gradient
    Device::template rms_norm<Compute>(context.stream, saved.x, weights.norm, eps, normed, saved.rstd);
    project_backward_weight<L, 3>(context, dqkv, normed, {gradients.q, gradients.k, gradients.v});
    context.progress();
    project_backward_input<L, 3>(context, dqkv, {weights.q, weights.k, weights.v}, normed);
    Device::template rms_norm_backward<Compute>(context.stream, saved.x, weights.norm, saved.rstd, normed, dy,
                                                Write::accumulate, gradients.norm.tensor, gradients.norm.next());
    context.progress();
  }

 private:
  template <class T>
  Tensor<T> q(Tensor<T> qkv) const {
    return qkv.slice_columns(0, q_columns());
  }
  template <class T>
  Tensor<T> k(Tensor<T> qkv) const {
    return qkv.slice_columns(q_columns(), q_columns() + kv_columns());
  }
  template <class T>
  Tensor<T> v(Tensor<T> qkv) const {
    return qkv.slice_columns(q_columns() + kv_columns(), qkv_columns());
  }
  /// q and k stand side by side, so one call rotates both.
  Tensor<Compute> rotated(Tensor<Compute> qkv) const { return qkv.slice_columns(0, q_columns() + kv_columns()); }
  device::AttentionShape problem(const Context<L>& context) const {
    return {.sequences = context.sequences,
            .sequence_length = context.sequence_length,
            .heads = heads,
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .documents = context.documents};
  }
};

}  // namespace fsdp::nn

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The first half of a transformer block: x + attention(norm(x)).
///
/// Saved for backward: the input, rotated q and k with v, attention's output and log-sum-exp. The normalised input is
/// made again.
#pragma once

#include <cstdint>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/operations.hpp>
#include <fsdp/nn/module.hpp>
#include <fsdp/nn/projection.hpp>
#include <fsdp/nn/rotary_table.hpp>

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
  using Shared = RotaryTable;

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
            {.name = "self_attn.k_proj.weight", .shape = {kv_columns(), hidden}, .joins_previous = true},
            {.name = "self_attn.v_proj.weight", .shape = {kv_columns(), hidden}, .joins_previous = true},
            {"self_attn.o_proj.weight", {hidden, q_columns()}}};
  }

  void forward(Context<L>& context, const Shared& shared, const Weights& weights, Saved& saved, Tensor<const Compute> x,
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
      device::enqueue(context.stream, device::RmsNorm<Compute>{
                                          .x = x, .weight = weights.norm, .eps = eps, .y = normed, .rstd = saved.rstd});
      project<L, 3>(context, normed, {weights.q, weights.k, weights.v}, saved.qkv);
    }
    context.progress();
    device::enqueue(context.stream, device::Rope<Compute>{.x = rotated(saved.qkv),
                                                          .table = shared.table,
                                                          .rotation = device::Rotation::forward,
                                                          .documents = context.documents});
    device::enqueue(context.stream, device::Attention<Compute>{.shape = problem(context),
                                                               .q = q(saved.qkv),
                                                               .k = k(saved.qkv),
                                                               .v = v(saved.qkv),
                                                               .out = saved.out,
                                                               .lse = saved.lse});
    context.progress();
    device::enqueue(context.stream, device::Copy<Compute>{.x = x, .y = y});
    device::enqueue(context.stream,
                    device::Matmul<Compute>{
                        .a = saved.out, .b = device::transposed(weights.out), .c = y, .write = Write::accumulate});
    context.progress();
  }

  void backward(Context<L>& context, const Shared& shared, const Weights& weights, const Gradients& gradients,
                const Saved& saved, Tensor<Compute> dy) const {
    const std::int64_t tokens = context.tokens();
    typename L::Frame frame(context.arena);
    const auto dqkv = frame.template allocate<Compute>({tokens, qkv_columns()});  // [T, (Hq + 2 Hkv) d]
    project_backward_weight<L, 1>(context, dy, saved.out, {gradients.out});
    context.progress();
    {
      typename L::Frame inner(context.arena);
      const auto dout = inner.template allocate<Compute>({tokens, q_columns()});  // [T, Hq d]
      device::enqueue(context.stream, device::Matmul<Compute>{.a = dy, .b = weights.out, .c = dout});
      context.progress();
      device::enqueue(context.stream, device::AttentionBackward<Compute>{.shape = problem(context),
                                                                         .q = q(saved.qkv),
                                                                         .k = k(saved.qkv),
                                                                         .v = v(saved.qkv),
                                                                         .out = saved.out,
                                                                         .lse = saved.lse,
                                                                         .dout = dout,
                                                                         .dq = q(dqkv),
                                                                         .dk = k(dqkv),
                                                                         .dv = v(dqkv)});
    }
    context.progress();
    device::enqueue(context.stream, device::Rope<Compute>{.x = rotated(dqkv),
                                                          .table = shared.table,
                                                          .rotation = device::Rotation::backward,
                                                          .documents = context.documents});
    const auto normed = frame.template allocate<Compute>({tokens, hidden});  // [T, H], then its gradient
    device::enqueue(
        context.stream,
        device::RmsNorm<Compute>{.x = saved.x, .weight = weights.norm, .eps = eps, .y = normed, .rstd = saved.rstd});
    project_backward_weight<L, 3>(context, dqkv, normed, {gradients.q, gradients.k, gradients.v});
    context.progress();
    project_backward_input<L, 3>(context, dqkv, {weights.q, weights.k, weights.v}, normed);
    device::enqueue(context.stream, device::RmsNormBackward<Compute>{.x = saved.x,
                                                                     .weight = weights.norm,
                                                                     .rstd = saved.rstd,
                                                                     .dy = normed,
                                                                     .dx = dy,
                                                                     .dx_write = Write::accumulate,
                                                                     .dw = gradients.norm.tensor,
                                                                     .dw_write = gradients.norm.next()});
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

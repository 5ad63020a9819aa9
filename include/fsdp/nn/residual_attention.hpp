// SPDX-License-Identifier: Apache-2.0
/// @file
/// The first half of a transformer block: x + attention(norm(x)).
///
/// Saved for backward: the input, the projections (q and k rotated in place), attention's output and log-sum-exp.
/// Backward recomputes the normalised input and, if heads are normalised, q and k as attention reads them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/low_rank.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/projection.hpp>
#include <tessera/fsdp/nn/rotary_table.hpp>

namespace fsdp::nn {

/// A norm, four projections with their biases, norms of heads, and low-rank paths.
template <class V>
struct AttentionFields {
  V norm, q, k, v, out;      // [H], [Hq d, H], [Hkv d, H], [Hkv d, H], [H, Hq d]
  V q_bias, k_bias, v_bias;  // [Hq d], [Hkv d], [Hkv d]; absent unless `biases`
  V q_norm, k_norm;          // [d], [d]; absent unless `head_norms`
  LowRankFields<3, V> qkv_paths = {};
  LowRankFields<1, V> out_path = {};
};

/// The low-rank paths beside q, k and v, which read the same input, and beside out.
struct AttentionPaths {
  LowRank<3> qkv = {};
  LowRank<1> out = {};
};

/// x + attention(rms_norm(x)): causal, grouped-query, rotary positions. Options: biases of q, k and v (Qwen2), a norm
/// of each head of q and k before its rotation (Qwen3), a sliding window (Mistral).
template <class L>
struct ResidualAttention : ModuleTypes<L, AttentionFields> {
  FSDP_MODULE_TYPES(L, AttentionFields)
  using Shared = RotaryTable;

  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  float eps = 1e-5f;
  std::int64_t window = 0;  ///< most tokens that one attends to, itself included; 0: no window
  bool biases = false;
  bool head_norms = false;
  AttentionPaths paths = {};

  struct Saved {
    Tensor<const Compute> x;  // [T, H]
    Tensor<float> rstd;       // [T]
    Tensor<Compute> qkv;      // [T, (Hq + 2 Hkv) d]; as projected if `head_norms`, else with q and k rotated
    Tensor<float> qk_rstd;    // [(Hq + Hkv) T], if `head_norms`
    Tensor<Compute> out;      // [T, Hq d]
    Tensor<float> lse;        // [sequences Hq, S]
  };

  /// Columns of the projections: d per head.
  /// @{
  std::int64_t q_columns() const { return heads * head_dim; }
  std::int64_t kv_columns() const { return kv_heads * head_dim; }
  std::int64_t qk_columns() const { return q_columns() + kv_columns(); }
  std::int64_t qkv_columns() const { return q_columns() + 2 * kv_columns(); }
  /// @}

  Parameters parameters() const {
    const auto vector = [](bool present, const char* name, std::int64_t size, Initial initial) {
      return present ? Parameter{name, {size}, initial} : Parameter::absent();
    };
    return {{"input_layernorm.weight", {hidden}, Initial::ones},
            {"self_attn.q_proj.weight", {q_columns(), hidden}},
            {.name = "self_attn.k_proj.weight", .shape = {kv_columns(), hidden}, .joins_previous = true},
            {.name = "self_attn.v_proj.weight", .shape = {kv_columns(), hidden}, .joins_previous = true},
            {"self_attn.o_proj.weight", {hidden, q_columns()}},
            vector(biases, "self_attn.q_proj.bias", q_columns(), Initial::zeros),
            vector(biases, "self_attn.k_proj.bias", kv_columns(), Initial::zeros),
            vector(biases, "self_attn.v_proj.bias", kv_columns(), Initial::zeros),
            vector(head_norms, "self_attn.q_norm.weight", head_dim, Initial::ones),
            vector(head_norms, "self_attn.k_norm.weight", head_dim, Initial::ones),
            low_rank_parameters<3>(paths.qkv,
                                   {{{"self_attn.q_proj.lora_A.weight", "self_attn.q_proj.lora_B.weight"},
                                     {"self_attn.k_proj.lora_A.weight", "self_attn.k_proj.lora_B.weight"},
                                     {"self_attn.v_proj.lora_A.weight", "self_attn.v_proj.lora_B.weight"}}},
                                   hidden, {q_columns(), kv_columns(), kv_columns()}),
            low_rank_parameters<1>(paths.out, {{{"self_attn.o_proj.lora_A.weight", "self_attn.o_proj.lora_B.weight"}}},
                                   q_columns(), {hidden})};
  }

  void forward(Context<L>& context, const Shared& shared, const Weights& weights, Saved& saved, Tensor<const Compute> x,
               Tensor<Compute> y) const {
    project_heads(context, weights, saved, x);
    {
      typename L::Frame frame(context.arena);
      attend(context, saved, rotated_heads(context, shared, weights, saved, frame, Pass::forward));
    }
    add_output(context, weights, saved, x, y);
  }

  /// A key and a value of each key-value head.
  std::int64_t cache_columns() const { return 2 * kv_columns(); }

  /// Runs forward with a KV cache [sequences * capacity, 2 Hkv d]: stores this pass's keys and values; in a decoding
  /// pass, attention also reads those of earlier tokens.
  void extend(Context<L>& context, const Shared& shared, const Weights& weights, Tensor<Compute> cache,
              Tensor<const Compute> x, Tensor<Compute> y) const {
    Saved saved;
    project_heads(context, weights, saved, x);
    {
      typename L::Frame frame(context.arena);
      const Tensor<Compute> qk = rotated_heads(context, shared, weights, saved, frame, Pass::forward);
      keep(context, saved, qk, cache);
      if (context.positions.empty())
        attend(context, saved, qk);
      else
        attend_to_kept(context, saved, qk, cache);
    }
    add_output(context, weights, saved, x, y);
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
      out_path_backward(context, weights, gradients, saved, dy, dout);
      const Tensor<Compute> qk = rotated_heads(context, shared, weights, saved, inner, Pass::backward);
      context.progress();
      device::enqueue(context.stream, device::AttentionBackward<Compute>{.shape = problem(context),
                                                                         .q = q(qk),
                                                                         .k = k(qk),
                                                                         .v = v(saved.qkv),
                                                                         .out = saved.out,
                                                                         .lse = saved.lse,
                                                                         .dout = dout,
                                                                         .dq = q(dqkv),
                                                                         .dk = k(dqkv),
                                                                         .dv = v(dqkv)});
    }
    context.progress();
    rotate(context, shared, qk(dqkv), device::Rotation::backward);
    if (head_norms) heads_backward(context, weights, gradients, saved, dqkv);
    if (biases) biases_backward(context, gradients, dqkv);
    const auto normed = frame.template allocate<Compute>({tokens, hidden});  // [T, H], then its gradient
    device::enqueue(
        context.stream,
        device::RmsNorm<Compute>{.x = saved.x, .weight = weights.norm, .eps = eps, .y = normed, .rstd = saved.rstd});
    project_backward_weight<L, 3>(context, dqkv, normed, {gradients.q, gradients.k, gradients.v});
    context.progress();
    const LowRankPath<L, 3> beside(context, paths.qkv, weights.qkv_paths);
    const auto du = paths.qkv.any() ? frame.template allocate<Compute>({tokens, paths.qkv.columns()})
                                    : Tensor<Compute>();  // [T, columns of qkv]
    beside.backward({q(dqkv), k(dqkv), v(dqkv)}, du);
    beside.backward_weight(gradients.qkv_paths, normed, {q(dqkv), k(dqkv), v(dqkv)}, du);
    project_backward_input<L, 3>(context, dqkv, {weights.q, weights.k, weights.v}, normed);
    beside.template backward_input<Compute>(du, normed);
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
  enum class Pass : std::uint8_t { forward, backward };

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
  Tensor<Compute> qk(Tensor<Compute> qkv) const { return qkv.slice_columns(0, qk_columns()); }

  /// Computes the projections of the normalised input, with their biases.
  void project_heads(Context<L>& context, const Weights& weights, Saved& saved, Tensor<const Compute> x) const {
    const std::int64_t tokens = context.tokens();
    saved = {.x = x,
             .rstd = context.template save<float>({tokens}),
             .qkv = context.template save<Compute>({tokens, qkv_columns()}),
             .qk_rstd = head_norms ? context.template save<float>({tokens * (heads + kv_heads)}) : Tensor<float>(),
             .out = context.template save<Compute>({tokens, q_columns()}),
             .lse = context.template save<float>({context.sequences * heads, context.sequence_length})};
    {
      typename L::Frame frame(context.arena);
      const auto normed = frame.template allocate<Compute>({tokens, hidden});  // [T, H]
      device::enqueue(context.stream, device::RmsNorm<Compute>{
                                          .x = x, .weight = weights.norm, .eps = eps, .y = normed, .rstd = saved.rstd});
      project<L, 3>(context, normed, {weights.q, weights.k, weights.v}, saved.qkv);
      LowRankPath<L, 3>(context, paths.qkv, weights.qkv_paths)
          .template forward<Compute>(normed, {q(saved.qkv), k(saved.qkv), v(saved.qkv)});
    }
    if (biases) add_biases(context, weights, saved.qkv);
    context.progress();
  }
  void rotate(Context<L>& context, const Shared& shared, Tensor<Compute> x, device::Rotation rotation) const {
    device::enqueue(
        context.stream,
        device::Rope<Compute>{.x = x, .table = shared.table, .rotation = rotation, .documents = context.documents});
  }
  /// Returns q and k as attention reads them, [T, (Hq + Hkv) d]. Without norms of heads, forward rotates the
  /// projections in place, once. With them, both passes compute q and k in `frame`, since backward needs the
  /// projections as they were.
  Tensor<Compute> rotated_heads(Context<L>& context, const Shared& shared, const Weights& weights, const Saved& saved,
                                typename L::Frame& frame, Pass pass) const {
    Tensor<Compute> heads = qk(saved.qkv);
    if (head_norms) {
      heads = frame.template allocate<Compute>({context.tokens(), qk_columns()});
      normalise_heads(context, weights, saved, heads);
    }
    if (head_norms || pass == Pass::forward) rotate(context, shared, heads, device::Rotation::forward);
    return heads;
  }
  void attend(Context<L>& context, const Saved& saved, Tensor<const Compute> qk) const {
    device::enqueue(
        context.stream,
        device::Attention<Compute>{
            .shape = problem(context), .q = q(qk), .k = k(qk), .v = v(saved.qkv), .out = saved.out, .lse = saved.lse});
    context.progress();
  }
  /// y = x + out * weights.out^T.
  void add_output(Context<L>& context, const Weights& weights, const Saved& saved, Tensor<const Compute> x,
                  Tensor<Compute> y) const {
    device::enqueue(context.stream, device::Copy<Compute>{.x = x, .y = y});
    device::enqueue(context.stream,
                    device::Matmul<Compute>{
                        .a = saved.out, .b = device::transposed(weights.out), .c = y, .write = Write::accumulate});
    LowRankPath<L, 1>(context, paths.out, weights.out_path).template forward<Compute>(saved.out, {y});
    context.progress();
  }
  /// Adds to dout what flows back through the path beside out, and writes the path's gradients.
  void out_path_backward(Context<L>& context, const Weights& weights, const Gradients& gradients, const Saved& saved,
                         Tensor<const Compute> dy, Tensor<Compute> dout) const {
    if (!paths.out.any()) return;
    typename L::Frame frame(context.arena);
    const LowRankPath<L, 1> beside(context, paths.out, weights.out_path);
    const auto du = frame.template allocate<Compute>({context.tokens(), paths.out.columns()});  // [T, r]
    beside.backward({dy}, du);
    beside.backward_weight(gradients.out_path, saved.out, {dy}, du);
    beside.template backward_input<Compute>(du, dout);
  }

  /// Return the two halves of the cache: keys, then values (device::KeepHeads).
  Tensor<Compute> kept_keys(Tensor<Compute> cache) const { return {cache.data(), {cache.rows() * kv_heads, head_dim}}; }
  Tensor<Compute> kept_values(Tensor<Compute> cache) const {
    return {cache.data() + cache.numel() / 2, {cache.rows() * kv_heads, head_dim}};
  }
  void keep(Context<L>& context, const Saved& saved, Tensor<const Compute> qk, Tensor<Compute> cache) const {
    const auto keep_heads = [&](Tensor<const Compute> x, Tensor<Compute> kept) {
      device::enqueue(context.stream,
                      device::KeepHeads<Compute>{
                          .sequences = context.sequences, .positions = context.positions.device, .x = x, .kept = kept});
    };
    keep_heads(k(qk), kept_keys(cache));
    keep_heads(v(saved.qkv), kept_values(cache));
  }
  void attend_to_kept(Context<L>& context, const Saved& saved, Tensor<const Compute> qk, Tensor<Compute> cache) const {
    const std::span<const std::int32_t> positions = context.positions.host;
    device::enqueue(context.stream, device::CachedAttention<Compute>{
                                        .kv_heads = kv_heads,
                                        .window = window,
                                        .longest = 1 + *std::max_element(positions.begin(), positions.end()),
                                        .positions = context.positions.device,
                                        .q = q(qk),
                                        .keys = kept_keys(cache),
                                        .values = kept_values(cache),
                                        .out = saved.out});
    context.progress();
  }

  void add_biases(Context<L>& context, const Weights& weights, Tensor<Compute> qkv) const {
    device::enqueue(context.stream, device::AddBias<Compute>{.bias = weights.q_bias, .y = q(qkv)});
    device::enqueue(context.stream, device::AddBias<Compute>{.bias = weights.k_bias, .y = k(qkv)});
    device::enqueue(context.stream, device::AddBias<Compute>{.bias = weights.v_bias, .y = v(qkv)});
  }
  void biases_backward(Context<L>& context, const Gradients& gradients, Tensor<Compute> dqkv) const {
    const auto sum = [&](const auto& gradient, Tensor<Compute> dy) {
      if (gradient.wanted())
        device::enqueue(context.stream,
                        device::BiasBackward<Compute>{.dy = dy, .dbias = gradient.tensor, .write = gradient.next()});
    };
    sum(gradients.q_bias, q(dqkv));
    sum(gradients.k_bias, k(dqkv));
    sum(gradients.v_bias, v(dqkv));
  }

  void normalise_heads(Context<L>& context, const Weights& weights, const Saved& saved, Tensor<Compute> qk) const {
    const std::int64_t tokens = context.tokens();
    const auto normalise = [&](Tensor<const Compute> x, Tensor<const Compute> weight, Tensor<Compute> y,
                               Tensor<float> rstd) {
      device::enqueue(context.stream,
                      device::RmsNorm<Compute>{.x = x, .weight = weight, .eps = eps, .y = y, .rstd = rstd});
    };
    normalise(q(saved.qkv), weights.q_norm, q(qk), q_rstd(saved, tokens));
    normalise(k(saved.qkv), weights.k_norm, k(qk), k_rstd(saved, tokens));
  }
  void heads_backward(Context<L>& context, const Weights& weights, const Gradients& gradients, const Saved& saved,
                      Tensor<Compute> dqkv) const {
    const auto differentiate = [&](Tensor<const Compute> x, Tensor<const Compute> weight, Tensor<const float> rstd,
                                   Tensor<Compute> dy, const auto& gradient) {
      device::enqueue(context.stream, device::RmsNormBackward<Compute>{.x = x,
                                                                       .weight = weight,
                                                                       .rstd = rstd,
                                                                       .dy = dy,
                                                                       .dx = dy,
                                                                       .dw = gradient.tensor,
                                                                       .dw_write = gradient.next()});
    };
    const std::int64_t tokens = context.tokens();
    differentiate(q(saved.qkv), weights.q_norm, q_rstd(saved, tokens), q(dqkv), gradients.q_norm);
    differentiate(k(saved.qkv), weights.k_norm, k_rstd(saved, tokens), k(dqkv), gradients.k_norm);
  }
  Tensor<float> q_rstd(const Saved& saved, std::int64_t tokens) const { return saved.qk_rstd.slice(0, tokens * heads); }
  Tensor<float> k_rstd(const Saved& saved, std::int64_t tokens) const {
    return saved.qk_rstd.slice(tokens * heads, tokens * (heads + kv_heads));
  }
  device::AttentionShape problem(const Context<L>& context) const {
    return {.sequences = context.sequences,
            .sequence_length = context.sequence_length,
            .heads = heads,
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .documents = context.documents,
            .window = window};
  }
};

}  // namespace fsdp::nn

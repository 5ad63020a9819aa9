// SPDX-License-Identifier: Apache-2.0
/// @file
/// The first half of a transformer block: x + attention(norm(x)).
///
/// Saved for backward: the input, the projections (q and k rotated in place), attention's output and log-sum-exp.
/// Backward recomputes the normalised input and, with head norms, the normalised and rotated q and k.
///
/// If several ranks share a sequence, tessera/fsdp/sequence/staged_attention.hpp composes the same parts in another
/// order: `norm`, `project`, attention (AttentionHeads), `output`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/attention_heads.hpp>
#include <tessera/fsdp/nn/embedding.hpp>
#include <tessera/fsdp/nn/low_rank.hpp>
#include <tessera/fsdp/nn/module.hpp>

namespace fsdp::nn {

/// A norm, four projections with their biases, head norms, and low-rank paths.
template <class V>
struct AttentionFields {
  V norm, q, k, v, out;      // [H], [Hq d, H], [Hkv d, H], [Hkv d, H], [H, Hq d]
  V q_bias, k_bias, v_bias;  // [Hq d], [Hkv d], [Hkv d]; absent unless `biases`
  V q_norm, k_norm;          // [d], [d]; absent unless `head_norms`
  LowRankFields<3, V> qkv_paths = {};
  LowRankFields<1, V> out_path = {};
};

/// The low-rank paths of q, k and v, which read the same input, and of the output projection.
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
  using Heads = AttentionHeads<L>;
  using Inputs = typename Heads::Inputs;  // q, k, v

  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  float eps = 1e-5f;
  std::int64_t window = 0;  ///< number of tokens that a token attends to, itself included; 0 if there is no window
  bool biases = false;
  bool head_norms = false;
  AttentionPaths paths = {};

  struct Saved {
    Tensor<const Compute> x;  // [T, H]
    Tensor<float> rstd;       // [T]
    typename Heads::Saved heads;
    Tensor<Compute> qkv;  // [T, (Hq + 2 Hkv) d]; unnormalised projections with `head_norms`, else with q and k rotated
    Tensor<Compute> out;  // [T, Hq d]
  };

  /// Number of columns of the projections: d per head.
  /// @{
  std::int64_t q_columns() const { return heads * head_dim; }
  std::int64_t kv_columns() const { return kv_heads * head_dim; }
  std::int64_t qkv_columns() const { return q_columns() + 2 * kv_columns(); }
  /// @}

  Parameters parameters() const {
    const auto bias = [this](const char* name, std::int64_t size) {
      return biases ? Parameter{.name = name, .shape = {size}, .initial = Initial::zeros, .block = head_dim}
                    : Parameter::absent();
    };
    const auto projection = [this](const char* name, std::int64_t rows, bool joins) {
      return Parameter{.name = name, .shape = {rows, hidden}, .joins_previous = joins, .block = head_dim * hidden};
    };
    return {norm_parameter("input_layernorm.weight", hidden),
            projection("self_attn.q_proj.weight", q_columns(), false),
            projection("self_attn.k_proj.weight", kv_columns(), true),
            projection("self_attn.v_proj.weight", kv_columns(), true),
            {"self_attn.o_proj.weight", {hidden, q_columns()}},
            bias("self_attn.q_proj.bias", q_columns()),
            bias("self_attn.k_proj.bias", kv_columns()),
            bias("self_attn.v_proj.bias", kv_columns()),
            head_norms ? norm_parameter("self_attn.q_norm.weight", head_dim) : Parameter::absent(),
            head_norms ? norm_parameter("self_attn.k_norm.weight", head_dim) : Parameter::absent(),
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
    save_projections(context, weights, saved, x);
    attention().forward(context, shared, norms(weights), saved.heads, split(saved.qkv), saved.out);
    add_attention(context, weights, saved, y);
  }

  /// Returns the cache columns per token: a key and a value for each key-value head.
  std::int64_t cache_columns() const { return 2 * kv_columns(); }

  /// Runs forward with a KV cache (AttentionHeads::extend).
  void extend(Context<L>& context, const Shared& shared, const Weights& weights, Tensor<Compute> cache,
              Tensor<const Compute> x, Tensor<Compute> y) const {
    Saved saved;
    save_projections(context, weights, saved, x);
    attention().extend(context, shared, norms(weights), cache, saved.heads, split(saved.qkv), saved.out);
    add_attention(context, weights, saved, y);
  }

  void backward(Context<L>& context, const Shared& shared, const Weights& weights, const Gradients& gradients,
                const Saved& saved, Tensor<Compute> dy) const {
    typename L::Frame frame(context.arena);
    const auto dqkv = frame.template allocate<Compute>({context.tokens(), qkv_columns()});  // [T, (Hq + 2 Hkv) d]
    output(context, weights).backward_weight({gradients.out}, saved.out, {dy});
    {
      typename L::Frame inner(context.arena);
      const auto dout = inner.template allocate<Compute>({context.tokens(), q_columns()});  // [T, Hq d]
      output(context, weights).backward_input(gradients.out_path, saved.out, {dy}, dout);
      attention().backward(context, shared, norms(weights), {gradients.q_norm, gradients.k_norm}, saved.heads,
                           split(saved.qkv), saved.out, dout, split(dqkv));
    }
    const auto normed = frame.template allocate<Compute>({context.tokens(), hidden});  // [T, H], then its gradient
    norm(context, weights, saved.x, saved.rstd, normed);
    project_backward(context, weights, gradients, normed, split(dqkv), normed);
    norm_backward(context, weights, gradients, saved.x, saved.rstd, normed, dy);
  }

  // The steps, for a range of rows of a batch: x and y [t, H], rstd [t]; q, k, v and attention's output have the
  // columns of the weights. `at`: the position of the first row, and for the output also of the first column.

  /// Writes the normalised x.
  void norm(Context<L>& context, const Weights& weights, Tensor<const Compute> x, Tensor<float> rstd,
            Tensor<Compute> y) const {
    context.enqueue(weights.norm, device::RmsNorm<Compute>{.x = x, .eps = eps, .y = y, .rstd = rstd});
  }
  /// Adds the input gradient to dx.
  void norm_backward(Context<L>& context, const Weights& weights, const Gradients& gradients, Tensor<const Compute> x,
                     Tensor<float> rstd, Tensor<const Compute> dy, Tensor<Compute> dx) const {
    context.enqueue(weights.norm, device::RmsNormBackward<Compute>{.x = x,
                                                                   .rstd = rstd,
                                                                   .dy = dy,
                                                                   .dx = dx,
                                                                   .dx_write = Write::accumulate,
                                                                   .dw = gradients.norm.tensor,
                                                                   .dw_write = gradients.norm.next()});
    context.progress();
  }
  /// Writes each of q, k and v whose weight is present.
  void project(Context<L>& context, const Weights& weights, Tensor<const Compute> x, const Inputs& y,
               const Origin& at = {}) const {
    projections(context, weights, at).template forward<Compute>(x, y);
    const std::array bias{weights.q_bias, weights.k_bias, weights.v_bias};
    for (std::size_t i = 0; biases && i < bias.size(); ++i)
      if (bias[i].data() != nullptr) context.enqueue(device::AddBias<Compute>{.bias = bias[i], .y = y[i]});
  }
  /// Writes the weights' gradients, and adds to dx or overwrites it. dx may alias x.
  template <class C>
  void project_backward(Context<L>& context, const Weights& weights, const Gradients& gradients,
                        Tensor<const Compute> x, const Inputs& dy, Tensor<C> dx, Write write = Write::overwrite,
                        const Origin& at = {}) const {
    const std::array<Tensor<const Compute>, 3> d{dy[0], dy[1], dy[2]};
    const std::array bias{gradients.q_bias, gradients.k_bias, gradients.v_bias};
    for (std::size_t i = 0; biases && i < bias.size(); ++i)
      if (bias[i].wanted())
        context.enqueue(device::BiasBackward<Compute>{.dy = d[i], .dbias = bias[i].tensor, .write = bias[i].next()});
    const Linear<L, 3> linear = projections(context, weights, at);
    linear.backward_weight({gradients.q, gradients.k, gradients.v}, x, d);
    linear.template backward_input<C>(gradients.qkv_paths, x, d, dx, write);
  }
  /// Returns the output projection, which adds attention's output to the residual stream.
  Linear<L, 1> output(Context<L>& context, const Weights& weights, const Origin& at = {}) const {
    return {context, {weights.out}, paths.out, weights.out_path, at};
  }
  /// Returns the weights of the head norms.
  typename Heads::Norms norms(const Weights& weights) const { return {weights.q_norm, weights.k_norm}; }

 private:
  Linear<L, 3> projections(Context<L>& context, const Weights& weights, const Origin& at) const {
    LowRank<3> present = paths.qkv;
    for (std::size_t i = 0; i < present.on.size(); ++i)
      present.on[i] = present.on[i] && weights.qkv_paths.b[i].data() != nullptr;
    return {context, {weights.q, weights.k, weights.v}, present, weights.qkv_paths, at};
  }
  Heads attention() const { return {heads, kv_heads, head_dim, eps, window, head_norms}; }
  Inputs split(Tensor<Compute> qkv) const {
    const std::int64_t q = q_columns(), k = q + kv_columns();
    return {qkv.slice_columns(0, q), qkv.slice_columns(q, k), qkv.slice_columns(k, qkv_columns())};
  }

  /// Sets all members of Saved, and computes q, k and v as one matrix.
  void save_projections(Context<L>& context, const Weights& weights, Saved& saved, Tensor<const Compute> x) const {
    const std::int64_t tokens = context.tokens();
    saved.x = x;
    saved.heads = attention().save(context);
    saved.qkv = context.template save<Compute>({tokens, qkv_columns()});
    saved.out = context.template save<Compute>({tokens, q_columns()});
    saved.rstd = context.template save<float>({tokens});
    typename L::Frame frame(context.arena);
    const auto normed = frame.template allocate<Compute>({tokens, hidden});  // [T, H]
    norm(context, weights, x, saved.rstd, normed);
    project(context, weights, normed, split(saved.qkv));
  }
  /// y = x + the output projection of attention.
  void add_attention(Context<L>& context, const Weights& weights, const Saved& saved, Tensor<Compute> y) const {
    context.enqueue(device::Copy<Compute>{.x = saved.x, .y = y});
    output(context, weights).template forward<Compute>(saved.out, {y}, Write::accumulate);
  }
};

}  // namespace fsdp::nn

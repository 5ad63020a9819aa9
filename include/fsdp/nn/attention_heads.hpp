// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention of a range of heads, between the projections: head norms (QK norm), rotary positions, attention, KV cache.
///
/// It reads q, k and v of all tokens. Without head norms, forward rotates q and k in place, once. With head norms,
/// forward and backward both compute the normalised and rotated q and k, since backward needs the unnormalised
/// projections.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/embedding.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/projection.hpp>

namespace fsdp::nn {

/// Query heads with the key-value heads that they read. q, k and v are `Inputs`; if they are adjacent columns of one
/// matrix, one call rotates q and k.
template <class L>
struct AttentionHeads {
  using Compute = typename L::Compute;
  using Inputs = std::array<Tensor<Compute>, 3>;    // [N, Hq d], [N, Hkv d], [N, Hkv d]
  using Norms = std::array<typename L::Weight, 2>;  // weights of the norm of q's heads and of k's heads, [d] each
  using NormGradients = std::array<GradientView<typename L::Accumulate>, 2>;

  std::int64_t heads = 0;     ///< Hq
  std::int64_t kv_heads = 0;  ///< Hkv, divides Hq
  std::int64_t head_dim = 0;  ///< d
  float eps = 1e-5f;
  std::int64_t window = 0;  ///< number of tokens that a token attends to, itself included; 0 if there is no window
  bool norms = false;       ///< whether the heads of q and k are normalised before rotation

  struct Saved {
    Tensor<float> qk_rstd;  // [(Hq + Hkv) N] with `norms`, else empty
    Tensor<float> lse;      // [sequences Hq, S]
  };

  /// Allocates the tensors that backward needs, uninitialised.
  Saved save(Context<L>& context) const {
    return {.qk_rstd = norms ? context.template save<float>({context.tokens() * (heads + kv_heads)}) : Tensor<float>(),
            .lse = context.template save<float>({context.sequences * heads, context.sequence_length})};
  }

  void forward(Context<L>& context, const RotaryTable& shared, const Norms& weights, const Saved& saved,
               const Inputs& in, Tensor<Compute> out) const {
    typename L::Frame frame(context.arena);
    attend(context, saved, rotated(context, shared, weights, saved, in, frame), out);
  }

  /// A forward that stores this pass's keys and values in a KV cache [sequences * capacity, 2 Hkv d]. In a decoding
  /// pass, attention also reads the keys and values of earlier tokens.
  void extend(Context<L>& context, const RotaryTable& shared, const Norms& weights, Tensor<Compute> cache,
              const Saved& saved, const Inputs& in, Tensor<Compute> out) const {
    typename L::Frame frame(context.arena);
    const Inputs seen = rotated(context, shared, weights, saved, in, frame);
    keep(context, seen[1], kept_keys(cache));
    keep(context, seen[2], kept_values(cache));
    if (context.positions.empty())
      attend(context, saved, seen, out);
    else
      attend_to_cached(context, seen[0], cache, out);
  }

  /// `in` must hold what forward left in it. Writes the gradients of q, k and v to `din`, and the gradients of the
  /// norms.
  void backward(Context<L>& context, const RotaryTable& shared, const Norms& weights, const NormGradients& gradients,
                const Saved& saved, const Inputs& in, Tensor<const Compute> out, Tensor<const Compute> dout,
                const Inputs& din) const {
    {
      typename L::Frame frame(context.arena);
      attend_backward(context, saved, rotated_again(context, shared, weights, saved, in, frame), out, dout, din);
    }
    rotate_backward(context, shared, weights, gradients, saved, in, din);
  }

  // The steps of forward and backward. `keys`: whether k is processed in addition to q.

  /// Returns q, k and v as attention reads them. With head norms, q and k are new tensors in the frame; otherwise they
  /// are rotated in place.
  Inputs rotated(Context<L>& context, const RotaryTable& shared, const Norms& weights, const Saved& saved,
                 const Inputs& in, typename L::Frame& frame, bool keys = true) const {
    if (norms) return rotated_again(context, shared, weights, saved, in, frame);
    rotate(context, shared, in, device::Rotation::forward, keys);
    return in;
  }
  /// The same for backward. Without head norms, forward has already rotated q and k in place, so they are returned
  /// unchanged.
  Inputs rotated_again(Context<L>& context, const RotaryTable& shared, const Norms& weights, const Saved& saved,
                       const Inputs& in, typename L::Frame& frame) const {
    if (!norms) return in;
    const std::int64_t q = heads * head_dim, k = kv_heads * head_dim;
    const auto both = frame.template allocate<Compute>({context.tokens(), q + k});  // [N, (Hq + Hkv) d]
    const Inputs seen = {both.slice_columns(0, q), both.slice_columns(q, q + k), in[2]};
    for (std::size_t i = 0; i < 2; ++i)
      context.enqueue(weights[i],
                      device::RmsNorm<Compute>{.x = in[i], .eps = eps, .y = seen[i], .rstd = rstd(saved, in, i)});
    rotate(context, shared, seen, device::Rotation::forward, true);
    return seen;
  }
  /// Writes attention's output and log-sum-exp.
  void attend(Context<L>& context, const Saved& saved, const Inputs& in, Tensor<Compute> out) const {
    context.enqueue(device::Attention<Compute>{
        .shape = problem(context), .q = in[0], .k = in[1], .v = in[2], .out = out, .lse = saved.lse});
    context.progress();
  }
  /// Writes the gradients of the tensors that `rotated` returned.
  void attend_backward(Context<L>& context, const Saved& saved, const Inputs& in, Tensor<const Compute> out,
                       Tensor<const Compute> dout, const Inputs& din) const {
    context.progress();
    context.enqueue(device::AttentionBackward<Compute>{.shape = problem(context),
                                                       .q = in[0],
                                                       .k = in[1],
                                                       .v = in[2],
                                                       .out = out,
                                                       .lse = saved.lse,
                                                       .dout = dout,
                                                       .dq = din[0],
                                                       .dk = din[1],
                                                       .dv = din[2]});
  }
  /// Propagates gradients back through `rotated`, in place, and writes the gradients of the norms.
  void rotate_backward(Context<L>& context, const RotaryTable& shared, const Norms& weights,
                       const NormGradients& gradients, const Saved& saved, const Inputs& in, const Inputs& din,
                       bool keys = true) const {
    context.progress();
    rotate(context, shared, din, device::Rotation::backward, keys);
    if (!norms) return;
    for (std::size_t i = 0; i < (keys ? 2 : 1); ++i)
      context.enqueue(weights[i], device::RmsNormBackward<Compute>{.x = in[i],
                                                                   .rstd = rstd(saved, in, i),
                                                                   .dy = din[i],
                                                                   .dx = din[i],
                                                                   .dw = gradients[i].tensor,
                                                                   .dw_write = gradients[i].next()});
  }

 private:
  void rotate(Context<L>& context, const RotaryTable& shared, const Inputs& x, device::Rotation rotation,
              bool keys) const {
    const auto turn = [&](Tensor<Compute> part) {
      context.enqueue(device::Rope<Compute>{
          .x = part, .table = shared.table, .rotation = rotation, .documents = context.documents});
    };
    if (const Tensor<Compute> both = side_by_side(std::array{x[0], x[1]}); keys && both.data() != nullptr)
      return turn(both);
    turn(x[0]);
    if (keys) turn(x[1]);
  }

  /// Return the two halves of the cache: keys, then values (device::KeepHeads).
  Tensor<Compute> kept_keys(Tensor<Compute> cache) const { return {cache.data(), {cache.rows() * kv_heads, head_dim}}; }
  Tensor<Compute> kept_values(Tensor<Compute> cache) const {
    return {cache.data() + cache.numel() / 2, {cache.rows() * kv_heads, head_dim}};
  }
  void keep(Context<L>& context, Tensor<const Compute> x, Tensor<Compute> kept) const {
    context.enqueue(device::KeepHeads<Compute>{
        .sequences = context.sequences, .positions = context.positions.device, .x = x, .kept = kept});
  }
  void attend_to_cached(Context<L>& context, Tensor<const Compute> q, Tensor<Compute> cache,
                        Tensor<Compute> out) const {
    const std::span<const std::int32_t> positions = context.positions.host;
    context.enqueue(
        device::CachedAttention<Compute>{.kv_heads = kv_heads,
                                         .window = window,
                                         .longest = 1 + *std::max_element(positions.begin(), positions.end()),
                                         .positions = context.positions.device,
                                         .q = q,
                                         .keys = kept_keys(cache),
                                         .values = kept_values(cache),
                                         .out = out});
    context.progress();
  }

  /// Returns the reciprocal RMS values of q's heads (i = 0) or of k's heads (i = 1).
  Tensor<float> rstd(const Saved& saved, const Inputs& in, std::size_t i) const {
    const std::int64_t tokens = in[0].rows(), split = tokens * heads;
    return i == 0 ? saved.qk_rstd.slice(0, split) : saved.qk_rstd.slice(split, split + tokens * kv_heads);
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

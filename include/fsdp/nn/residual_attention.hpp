// SPDX-License-Identifier: Apache-2.0
/// @file
/// The first half of a transformer block: x + attention(norm(x)).
///
/// Saved for backward: the input, the projections (q and k rotated in place), attention's output and log-sum-exp.
/// Backward recomputes the normalised input and, if heads are normalised, q and k as attention reads them.
///
/// The block states its stages (tessera/fsdp/nn/stages.hpp); forward and backward are the same stages with one range of
/// all heads. A range reads slices of the weights, so that its q, k and v are matrices of their own. k and v are common
/// to all parts of a rank. Ranks that read the same key-value head each project it; their gradients add up in its
/// weights.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/attention_heads.hpp>
#include <tessera/fsdp/nn/attention_slices.hpp>
#include <tessera/fsdp/nn/low_rank.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/projection.hpp>
#include <tessera/fsdp/nn/repeat.hpp>
#include <tessera/fsdp/nn/rotary_table.hpp>
#include <tessera/fsdp/nn/stages.hpp>

namespace fsdp::nn {

/// x + attention(rms_norm(x)): causal, grouped-query, rotary positions. Options: biases of q, k and v (Qwen2), a norm
/// of each head of q and k before its rotation (Qwen3), a sliding window (Mistral).
template <class L>
struct ResidualAttention : ModuleTypes<L, AttentionFields> {
  FSDP_MODULE_TYPES(L, AttentionFields)
  using Shared = RotaryTable;
  using Inputs = typename AttentionHeads<L>::Inputs;  // q, k, v
  static constexpr std::size_t inputs = 3;
  static constexpr std::size_t common_inputs = 2;  ///< k and v

  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  float eps = 1e-5f;
  std::int64_t window = 0;  ///< most tokens that one attends to, itself included; 0: no window
  bool biases = false;
  bool head_norms = false;
  AttentionPaths paths = {};
  std::int64_t stage_rows = 8192;  ///< most rows that a stage works on at a time, unless one range has all heads

  /// What the stages keep, of own rows and of the heads of a range.
  /// @{
  struct RowsSaved {
    Tensor<const Compute> x;  // [T, H]
    Tensor<float> rstd;       // [T]
  };
  using HeadsSaved = typename AttentionHeads<L>::Saved;
  /// @}
  struct Saved {
    RowsSaved rows;
    HeadsSaved heads;
    Tensor<Compute> qkv;  // [T, (Hq + 2 Hkv) d]; as projected if `head_norms`, else with q and k rotated
    Tensor<Compute> out;  // [T, Hq d]
  };

  /// Columns of the projections: d per head.
  /// @{
  std::int64_t q_columns() const { return heads * head_dim; }
  std::int64_t kv_columns() const { return kv_heads * head_dim; }
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
    project_all(context, weights, saved, x);
    between_of(all()).forward(context, shared, norms(weights), saved.heads, split(saved.qkv), saved.out);
    after(context, shared, weights, saved.rows, x, std::array{all()}, std::array{saved.out}, y);
  }

  /// A key and a value of each key-value head.
  std::int64_t cache_columns() const { return 2 * kv_columns(); }

  /// Runs forward with a KV cache (AttentionHeads::extend).
  void extend(Context<L>& context, const Shared& shared, const Weights& weights, Tensor<Compute> cache,
              Tensor<const Compute> x, Tensor<Compute> y) const {
    Saved saved;
    project_all(context, weights, saved, x);
    between_of(all()).extend(context, shared, norms(weights), cache, saved.heads, split(saved.qkv), saved.out);
    after(context, shared, weights, saved.rows, x, std::array{all()}, std::array{saved.out}, y);
  }

  void backward(Context<L>& context, const Shared& shared, const Weights& weights, const Gradients& gradients,
                const Saved& saved, Tensor<Compute> dy) const {
    typename L::Frame frame(context.arena);
    const auto dqkv = frame.template allocate<Compute>({context.tokens(), qkv_columns()});  // [T, (Hq + 2 Hkv) d]
    output_weight_backward(context, gradients, saved.out, dy);
    {
      typename L::Frame inner(context.arena);
      const auto dout = inner.template allocate<Compute>({context.tokens(), q_columns()});  // [T, Hq d]
      output_backward(context, weights, gradients, all(), 0, saved.out, dy, dout);
      between_backward(context, shared, weights, gradients, saved.heads, all(), split(saved.qkv), saved.out, dout,
                       split(dqkv));
    }
    before_backward(context, shared, weights, gradients, saved.rows, Part{.ranges = std::array{all()}},
                    std::array<Inputs, 1>{split(dqkv)}, dy);
  }

  /// The stages (tessera/fsdp/nn/stages.hpp). The middle is cut by query heads.
  /// @{
  std::int64_t shares() const { return heads; }
  std::array<std::int64_t, inputs> input_columns(const HeadRange& range) const {
    const std::int64_t kv = slices().kv_count(range) * head_dim;
    return {range.size() * head_dim, kv, kv};
  }
  std::int64_t output_columns(const HeadRange& range) const { return range.size() * head_dim; }

  void before(Context<L>& rows, const Shared&, const Weights& weights, RowsSaved& saved, Tensor<const Compute> x,
              const Part& part, std::span<const Inputs> in) const {
    if (part.index == 0) saved = {.x = x, .rstd = rows.template save<float>({rows.tokens()})};
    for_rows(rows, part.whole(), [&](std::int64_t begin, std::int64_t end) {
      typename L::Frame frame(rows.arena);
      const auto normed = frame.template allocate<Compute>({end - begin, hidden});  // [t, H]
      normalise(rows, weights, saved, begin, normed);
      slices().for_each_piece(part.ranges, in, [&](const HeadPiece& piece, const Inputs& columns) {
        project_heads(rows, slices().of_piece(weights, piece), normed, begin, rows_of(columns, begin, end));
        rows.progress();
      });
    });
  }

  void between(Context<L>& all, const Shared& shared, const Weights& weights, HeadsSaved& saved, const HeadRange& range,
               const Inputs& in, Tensor<Compute> out) const {
    const AttentionHeads<L> heads_of_range = between_of(range);
    saved = heads_of_range.save(all);
    heads_of_range.forward(all, shared, norms(weights), saved, of_part(range, in), out);
  }

  /// y = x + the sum of outs_i times columns of weights.out. The sum over several ranges is rounded once.
  void after(Context<L>& rows, const Shared&, const Weights& weights, const RowsSaved&, Tensor<const Compute> x,
             std::span<const HeadRange> ranges, std::span<const Tensor<Compute>> outs, Tensor<Compute> y) const {
    for_rows(rows, ranges.size() == 1, [&](std::int64_t begin, std::int64_t end) {
      const auto add = [&]<class C>(Tensor<C> sum) {
        device::enqueue(rows.stream, device::Copy<Compute, C>{.x = x.slice(begin, end), .y = sum});
        for (std::size_t i = 0; i < ranges.size(); ++i)
          add_output(rows, weights, ranges[i], begin, outs[i].slice(begin, end), sum);
      };
      if (ranges.size() == 1 || std::is_same_v<Compute, float>) return add(y.slice(begin, end));
      typename L::Frame frame(rows.arena);
      const auto sum = frame.template allocate<float>({end - begin, hidden});  // [t, H]
      add(sum);
      device::enqueue(rows.stream, device::Copy<float, Compute>{.x = sum, .y = y.slice(begin, end)});
    });
  }

  /// Does nothing: `after` keeps nothing for backward.
  void after_again(Context<L>&, const Shared&, const Weights&, const RowsSaved&, Tensor<const Compute>,
                   std::span<const HeadRange>, std::span<const Tensor<Compute>>) const {}

  void after_backward(Context<L>& rows, const Shared&, const Weights& weights, const Gradients& gradients,
                      const RowsSaved&, std::span<const HeadRange> ranges, std::span<const Tensor<Compute>> outs,
                      Tensor<Compute> dy, std::span<const Tensor<Compute>> douts) const {
    const bool whole = ranges.size() == 1;
    if (!whole) {
      write_in_parts<L>(rows, gradients.out);
      write_in_parts<L>(rows, gradients.out_path.a[0]);
    }
    for_rows(rows, whole, [&](std::int64_t begin, std::int64_t end) {
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        const Gradients own = slices().of_output(gradients, ranges[i]);
        const auto out = outs[i].slice(begin, end), d = dy.slice(begin, end);  // [t, n d], [t, H]
        output_weight_backward(rows, own, out, d);
        output_backward(rows, weights, own, ranges[i], begin, out, d, douts[i].slice(begin, end));
      }
    });
  }

  void between_backward(Context<L>& all, const Shared& shared, const Weights& weights, const Gradients& gradients,
                        const HeadsSaved& saved, const HeadRange& range, const Inputs& in, Tensor<const Compute> out,
                        Tensor<const Compute> dout, const Inputs& din) const {
    between_of(range).backward(all, shared, norms(weights), {gradients.q_norm, gradients.k_norm}, saved,
                               of_part(range, in), out, dout, of_part(range, din));
  }

  void before_backward(Context<L>& rows, const Shared&, const Weights& weights, const Gradients& gradients,
                       const RowsSaved& saved, const Part& part, std::span<const Inputs> din,
                       Tensor<Compute> dy) const {
    if (!part.whole())
      for (const auto& gradient : AttentionSlices::cut_by_pieces(gradients)) write_in_parts<L>(rows, gradient);
    for_rows(rows, part.whole(), [&](std::int64_t begin, std::int64_t end) {
      typename L::Frame frame(rows.arena);
      const auto normed = frame.template allocate<Compute>({end - begin, hidden});  // [t, H], then its gradient
      normalise(rows, weights, saved, begin, normed);
      const auto add = [&]<class C>(Tensor<C> dnormed) {
        Write write = Write::overwrite;
        slices().for_each_piece(part.ranges, din, [&](const HeadPiece& piece, const Inputs& columns) {
          heads_backward(rows, slices().of_piece(weights, piece), slices().of_piece(gradients, piece), normed, begin,
                         rows_of(columns, begin, end), dnormed, write);
          write = Write::accumulate;
        });
      };
      if (part.whole()) {
        add(normed);
      } else {
        const auto sum = frame.template allocate<float>({end - begin, hidden});  // [t, H]
        add(sum);
        device::enqueue(rows.stream, device::Copy<float, Compute>{.x = sum, .y = normed});
      }
      device::enqueue(rows.stream, device::RmsNormBackward<Compute>{.x = saved.x.slice(begin, end),
                                                                    .weight = weights.norm,
                                                                    .rstd = saved.rstd.slice(begin, end),
                                                                    .dy = normed,
                                                                    .dx = dy.slice(begin, end),
                                                                    .dx_write = Write::accumulate,
                                                                    .dw = gradients.norm.tensor,
                                                                    .dw_write = gradients.norm.next()});
      rows.progress();
    });
  }
  /// @}

 private:
  HeadRange all() const { return {0, heads}; }
  AttentionSlices slices() const { return {heads / kv_heads, head_dim}; }
  Inputs split(Tensor<Compute> qkv) const {
    const std::int64_t q = q_columns(), k = q + kv_columns();
    return {qkv.slice_columns(0, q), qkv.slice_columns(q, k), qkv.slice_columns(k, qkv_columns())};
  }
  static Inputs rows_of(const Inputs& in, std::int64_t begin, std::int64_t end) {
    const auto rows = [&](const Tensor<Compute>& all) { return all.data() == nullptr ? all : all.slice(begin, end); };
    return {rows(in[0]), rows(in[1]), rows(in[2])};
  }
  typename AttentionHeads<L>::Norms norms(const Weights& weights) const { return {weights.q_norm, weights.k_norm}; }

  AttentionHeads<L> between_of(const HeadRange& range) const {
    return {.heads = range.size(),
            .kv_heads = slices().kv_of(range).size(),
            .head_dim = head_dim,
            .eps = eps,
            .window = window,
            .norms = head_norms,
            .begins_keys = slices().begins_kv(range),
            .ends_keys = slices().ends_kv(range)};
  }
  /// Returns q of a part, and the heads of k and v that it reads.
  Inputs of_part(const HeadRange& range, const Inputs& in) const {
    const HeadRange kv = slices().kv_of(range);
    const auto columns = [&](const Tensor<Compute>& all) {
      return all.slice_columns(kv.begin * head_dim, kv.end * head_dim);
    };
    return {in[0], columns(in[1]), columns(in[2])};
  }
  /// Calls body(begin, end) for tiles of the rows: all of them, or stage_rows at a time.
  template <class Body>
  void for_rows(Context<L>& context, bool at_once, Body body) const {
    const std::int64_t rows = context.tokens(), most = at_once ? std::max<std::int64_t>(rows, 1) : stage_rows;
    const auto end = [&](std::size_t tile) { return std::min((static_cast<std::int64_t>(tile) + 1) * most, rows); };
    const auto tiles = static_cast<std::size_t>(std::max<std::int64_t>(ceil_divide(rows, most), 1));
    const auto alike = [&](std::size_t tile) { return end(tile) - end(tile - 1) == most; };
    repeat(context, tiles, alike, [&](std::size_t tile) { body(tile == 0 ? 0 : end(tile - 1), end(tile)); });
  }

  /// Sets all of Saved, and computes q, k and v as one matrix.
  void project_all(Context<L>& context, const Weights& weights, Saved& saved, Tensor<const Compute> x) const {
    const std::int64_t tokens = context.tokens();
    saved = {.rows = {},
             .heads = between_of(all()).save(context),
             .qkv = context.template save<Compute>({tokens, qkv_columns()}),
             .out = context.template save<Compute>({tokens, q_columns()})};
    before(context, {}, weights, saved.rows, x, Part{.ranges = std::array{all()}},
           std::array<Inputs, 1>{split(saved.qkv)});
  }
  /// Normalises rows of x that begin at `begin`.
  void normalise(Context<L>& context, const Weights& weights, const RowsSaved& saved, std::int64_t begin,
                 Tensor<Compute> y) const {
    const std::int64_t end = begin + y.rows();
    device::enqueue(context.stream, device::RmsNorm<Compute>{.x = saved.x.slice(begin, end),
                                                             .weight = weights.norm,
                                                             .eps = eps,
                                                             .y = y,
                                                             .rstd = saved.rstd.slice(begin, end)});
  }

  // The parts of a piece or range, for rows that begin at `begin`: x [t, H], q, k and v [t, columns of the piece].

  void project_heads(Context<L>& context, const Weights& weights, Tensor<const Compute> x, std::int64_t begin,
                     const Inputs& y) const {
    project<L, 3>(context, x, {weights.q, weights.k, weights.v}, y);
    const LowRank<3> beside = paths_of(weights);
    LowRankPath<L, 3>(context, beside, weights.qkv_paths, begin).template forward<Compute>(x, y);
    if (!biases) return;
    const std::array bias{weights.q_bias, weights.k_bias, weights.v_bias};
    for (std::size_t i = 0; i < inputs; ++i)
      if (bias[i].data() != nullptr)
        device::enqueue(context.stream, device::AddBias<Compute>{.bias = bias[i], .y = y[i]});
  }
  /// Writes the weights' gradients, and adds to dx, or overwrites it, which may be x.
  template <class C>
  void heads_backward(Context<L>& context, const Weights& weights, const Gradients& gradients, Tensor<const Compute> x,
                      std::int64_t begin, const Inputs& dy, Tensor<C> dx, Write write) const {
    typename L::Frame frame(context.arena);
    const std::array<Tensor<const Compute>, inputs> d{dy[0], dy[1], dy[2]};
    const std::array bias{gradients.q_bias, gradients.k_bias, gradients.v_bias};
    for (std::size_t i = 0; i < inputs && biases; ++i)
      if (bias[i].wanted())
        device::enqueue(context.stream,
                        device::BiasBackward<Compute>{.dy = d[i], .dbias = bias[i].tensor, .write = bias[i].next()});
    project_backward_weight<L, 3>(context, d, x, {gradients.q, gradients.k, gradients.v});
    context.progress();
    const LowRank<3> low_rank = paths_of(weights);
    const LowRankPath<L, 3> beside(context, low_rank, weights.qkv_paths, begin);
    const auto du = low_rank.any() ? frame.template allocate<Compute>({x.rows(), low_rank.columns()})
                                   : Tensor<Compute>();  // [t, columns of qkv]
    beside.backward(d, du);
    beside.backward_weight(gradients.qkv_paths, x, d, du);
    project_backward_input<L, 3>(context, dy, {weights.q, weights.k, weights.v}, dx, write);
    beside.template backward_input<C>(du, dx);
  }

  /// Returns the low-rank paths beside the projections of a piece.
  LowRank<3> paths_of(const Weights& weights) const {
    LowRank<3> of = paths.qkv;
    for (std::size_t i = 0; i < inputs; ++i) of.on[i] = of.on[i] && weights.qkv_paths.b[i].data() != nullptr;
    return of;
  }

  template <class C>
  void add_output(Context<L>& context, const Weights& weights, const HeadRange& range, std::int64_t begin,
                  Tensor<const Compute> out, Tensor<C> y) const {
    const Weights own = slices().of_output(weights, range);
    device::enqueue(
        context.stream,
        device::Matmul<Compute, C>{.a = out, .b = device::transposed(own.out), .c = y, .write = Write::accumulate});
    LowRankPath<L, 1>(context, paths.out, own.out_path, begin, range.begin * head_dim).template forward<C>(out, {y});
    context.progress();
  }
  /// `gradients` are those of the range.
  void output_weight_backward(Context<L>& context, const Gradients& gradients, Tensor<const Compute> out,
                              Tensor<const Compute> dy) const {
    project_backward_weight<L, 1>(context, {dy}, out, {gradients.out});
    context.progress();
  }
  /// Writes dout, and the gradients of the path beside out. dout may be `out`.
  void output_backward(Context<L>& context, const Weights& weights, const Gradients& gradients, const HeadRange& range,
                       std::int64_t begin, Tensor<const Compute> out, Tensor<const Compute> dy,
                       Tensor<Compute> dout) const {
    typename L::Frame frame(context.arena);
    const Weights own = slices().of_output(weights, range);
    const LowRankPath<L, 1> beside(context, paths.out, own.out_path, begin, range.begin * head_dim);
    const auto du = paths.out.any() ? frame.template allocate<Compute>({dy.rows(), paths.out.columns()})
                                    : Tensor<Compute>();  // [t, r]
    beside.backward({dy}, du);
    beside.backward_weight(gradients.out_path, out, {dy}, du);
    if (own.out.contiguous() || std::is_same_v<Compute, float>)
      device::enqueue(context.stream, device::Matmul<Compute>{.a = dy, .b = own.out, .c = dout});
    else
      multiply_by_slice<L>(context, dy, own.out, dout);
    beside.template backward_input<Compute>(du, dout);
  }
};

}  // namespace fsdp::nn

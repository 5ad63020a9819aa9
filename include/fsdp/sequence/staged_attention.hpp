// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stages of attention (tessera/fsdp/nn/stages.hpp), composed from the parts of ResidualAttention.
///
/// The middle is cut by query heads. A range reads slices of the weights, so that its q, k and v are separate matrices.
/// k and v are common to all parts of a rank: the first part rotates k in place, and the last part propagates its
/// gradient back through rotation and norm. Ranks that read the same key-value head each project it; their gradients
/// are summed in its weights.
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
#include <tessera/fsdp/nn/plan_of.hpp>
#include <tessera/fsdp/nn/projection.hpp>
#include <tessera/fsdp/nn/residual_attention.hpp>
#include <tessera/fsdp/nn/stages.hpp>
#include <tessera/fsdp/sequence/attention_slices.hpp>

namespace fsdp::nn {

/// The stages of a ResidualAttention, which must outlive it.
template <class L>
struct StagedAttention {
  using Whole = ResidualAttention<L>;
  using Heads = typename Whole::Heads;
  using Compute = typename L::Compute;
  using Accumulate = typename L::Accumulate;
  using Shared = typename Whole::Shared;
  using Weights = typename Whole::Weights;
  using Gradients = typename Whole::Gradients;
  template <class V>
  using FieldsOf = typename Whole::template FieldsOf<V>;
  static constexpr std::size_t parameter_count = Whole::parameter_count;
  using Inputs = typename Whole::Inputs;  // q, k, v
  static constexpr std::size_t inputs = 3;
  static constexpr std::size_t common_inputs = 2;  ///< k and v

  /// The tensors that the work on own rows saves.
  struct RowsSaved {
    Tensor<const Compute> x;  // [T, H]
    Tensor<float> rstd;       // [T]
  };
  using HeadsSaved = typename Heads::Saved;

  const Whole& whole;
  std::int64_t stage_rows = 8192;  ///< maximum number of rows per tile of a stage; ignored if one range has all heads

  /// See tessera/fsdp/nn/stages.hpp.
  /// @{
  auto parameters() const { return whole.parameters(); }
  std::int64_t shares() const { return whole.heads; }
  std::array<std::int64_t, inputs> input_columns(const HeadRange& range) const {
    const std::int64_t kv = slices().kv_count(range) * whole.head_dim;
    return {range.size() * whole.head_dim, kv, kv};
  }
  std::int64_t output_columns(const HeadRange& range) const { return range.size() * whole.head_dim; }

  void before(Context<L>& rows, const Shared&, const Weights& weights, RowsSaved& saved, Tensor<const Compute> x,
              const Part& part, std::span<const Inputs> in) const {
    if (part.index == 0) saved = {.x = x, .rstd = rows.template save<float>({rows.tokens()})};
    for_rows(rows, part.whole(), [&](std::int64_t begin, std::int64_t end) {
      typename L::Frame frame(rows.arena);
      const auto normed = frame.template allocate<Compute>({end - begin, whole.hidden});  // [t, H]
      normalise(rows, weights, saved, begin, normed);
      slices().for_each_piece(part.ranges, in, [&](const HeadPiece& piece, const Inputs& columns) {
        whole.project(rows, slices().of_piece(weights, piece), normed, rows_of(columns, begin, end), {.row = begin});
      });
    });
  }

  void between(Context<L>& all, const Shared& shared, const Weights& weights, HeadsSaved& saved, const HeadRange& range,
               const Inputs& in, Tensor<Compute> out) const {
    const Heads heads = heads_of(range);
    saved = heads.save(all);
    typename L::Frame frame(all.arena);
    heads.attend(
        all, saved,
        heads.rotated(all, shared, whole.norms(weights), saved, of_part(range, in), frame, slices().begins_kv(range)),
        out);
  }

  /// y = x + sum of outs_i W_i^T, where W_i are the columns of weights.out that read range i. The sum over several
  /// ranges is rounded once.
  void after(Context<L>& rows, const Shared&, const Weights& weights, const RowsSaved&, Tensor<const Compute> x,
             std::span<const HeadRange> ranges, std::span<const Tensor<Compute>> outs, Tensor<Compute> y) const {
    for_rows(rows, ranges.size() == 1, [&](std::int64_t begin, std::int64_t end) {
      const auto add = [&]<class C>(Tensor<C> sum) {
        device::enqueue(rows.stream, device::Copy<Compute, C>{.x = x.slice(begin, end), .y = sum});
        for (std::size_t i = 0; i < ranges.size(); ++i)
          output(rows, weights, ranges[i], begin)
              .template forward<C>(outs[i].slice(begin, end), {sum}, Write::accumulate);
      };
      if (ranges.size() == 1 || std::is_same_v<Compute, float>) return add(y.slice(begin, end));
      typename L::Frame frame(rows.arena);
      const auto sum = frame.template allocate<float>({end - begin, whole.hidden});  // [t, H]
      add(sum);
      device::enqueue(rows.stream, device::Copy<float, Compute>{.x = sum, .y = y.slice(begin, end)});
    });
  }

  /// Does nothing, since `after` saves nothing for backward.
  void after_again(Context<L>&, const Shared&, const Weights&, const RowsSaved&, Tensor<const Compute>,
                   std::span<const HeadRange>, std::span<const Tensor<Compute>>) const {}

  void after_backward(Context<L>& rows, const Shared&, const Weights& weights, const Gradients& gradients,
                      const RowsSaved&, std::span<const HeadRange> ranges, std::span<const Tensor<Compute>> outs,
                      Tensor<Compute> dy, std::span<const Tensor<Compute>> douts) const {
    const bool at_once = ranges.size() == 1;
    if (!at_once) {
      write_in_parts<L>(rows, gradients.out);
      write_in_parts<L>(rows, gradients.out_path.a[0]);
    }
    for_rows(rows, at_once, [&](std::int64_t begin, std::int64_t end) {
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        const Gradients own = slices().of_output(gradients, ranges[i]);
        const auto out = outs[i].slice(begin, end), d = dy.slice(begin, end);  // [t, n d], [t, H]
        const Linear<L, 1> linear = output(rows, weights, ranges[i], begin);
        linear.backward_weight({own.out}, out, {d});
        linear.template backward_input<Compute>(own.out_path, out, {d}, douts[i].slice(begin, end));
      }
    });
  }

  void between_backward(Context<L>& all, const Shared& shared, const Weights& weights, const Gradients& gradients,
                        const HeadsSaved& saved, const HeadRange& range, const Inputs& in, Tensor<const Compute> out,
                        Tensor<const Compute> dout, const Inputs& din) const {
    const Heads heads = heads_of(range);
    const Inputs of = of_part(range, in), d = of_part(range, din);
    {
      typename L::Frame frame(all.arena);
      const Inputs seen = heads.rotated_again(all, shared, whole.norms(weights), saved, of, frame);
      Inputs own = d;
      const bool adds = !slices().begins_kv(range);  // accumulate k and v's gradients, which the first part wrote
      for (std::size_t i = 1; adds && i < inputs; ++i) own[i] = frame.template allocate<Compute>(d[i].shape());
      heads.attend_backward(all, saved, seen, out, dout, own);
      for (std::size_t i = 1; adds && i < inputs; ++i)
        device::enqueue(all.stream, device::Add<Compute>{.x = own[i], .y = d[i]});
    }
    heads.rotate_backward(all, shared, whole.norms(weights), {gradients.q_norm, gradients.k_norm}, saved, of, d,
                          slices().ends_kv(range));
  }

  void before_backward(Context<L>& rows, const Shared&, const Weights& weights, const Gradients& gradients,
                       const RowsSaved& saved, const Part& part, std::span<const Inputs> din,
                       Tensor<Compute> dy) const {
    if (!part.whole())
      for (const auto& gradient : AttentionSlices::cut_by_pieces(gradients)) write_in_parts<L>(rows, gradient);
    for_rows(rows, part.whole(), [&](std::int64_t begin, std::int64_t end) {
      typename L::Frame frame(rows.arena);
      const auto normed = frame.template allocate<Compute>({end - begin, whole.hidden});  // [t, H], then its gradient
      normalise(rows, weights, saved, begin, normed);
      const auto add = [&]<class C>(Tensor<C> dnormed) {
        Write write = Write::overwrite;
        slices().for_each_piece(part.ranges, din, [&](const HeadPiece& piece, const Inputs& columns) {
          whole.template project_backward<C>(rows, slices().of_piece(weights, piece),
                                             slices().of_piece(gradients, piece), normed, rows_of(columns, begin, end),
                                             dnormed, write, {.row = begin});
          write = Write::accumulate;
        });
      };
      if (part.whole()) {
        add(normed);
      } else {
        const auto sum = frame.template allocate<float>({end - begin, whole.hidden});  // [t, H]
        add(sum);
        device::enqueue(rows.stream, device::Copy<float, Compute>{.x = sum, .y = normed});
      }
      whole.norm_backward(rows, weights, gradients, saved.x.slice(begin, end), saved.rstd.slice(begin, end), normed,
                          dy.slice(begin, end));
    });
  }
  /// @}

 private:
  AttentionSlices slices() const { return {whole.heads / whole.kv_heads, whole.head_dim}; }
  static Inputs rows_of(const Inputs& in, std::int64_t begin, std::int64_t end) {
    const auto rows = [&](const Tensor<Compute>& all) { return all.data() == nullptr ? all : all.slice(begin, end); };
    return {rows(in[0]), rows(in[1]), rows(in[2])};
  }
  Heads heads_of(const HeadRange& range) const {
    return {.heads = range.size(),
            .kv_heads = slices().kv_of(range).size(),
            .head_dim = whole.head_dim,
            .eps = whole.eps,
            .window = whole.window,
            .norms = whole.head_norms};
  }
  /// Returns a part's q, and the heads of k and v that the part reads.
  Inputs of_part(const HeadRange& range, const Inputs& in) const {
    const HeadRange kv = slices().kv_of(range);
    const auto columns = [&](const Tensor<Compute>& all) {
      return all.slice_columns(kv.begin * whole.head_dim, kv.end * whole.head_dim);
    };
    return {in[0], columns(in[1]), columns(in[2])};
  }
  /// Normalises the rows of x from row `begin` on.
  void normalise(Context<L>& rows, const Weights& weights, const RowsSaved& saved, std::int64_t begin,
                 Tensor<Compute> y) const {
    const std::int64_t end = begin + y.rows();
    whole.norm(rows, weights, saved.x.slice(begin, end), saved.rstd.slice(begin, end), y);
  }
  /// Returns the output layer, cut to the columns that read a range.
  Linear<L, 1> output(Context<L>& rows, const Weights& weights, const HeadRange& range, std::int64_t begin) const {
    return whole.output(rows, slices().of_output(weights, range), {begin, range.begin * whole.head_dim});
  }
  /// Calls body(begin, end) for tiles of the rows: all rows at once if `at_once`, else tiles of stage_rows rows.
  template <class Body>
  void for_rows(Context<L>& context, bool at_once, Body body) const {
    const std::int64_t rows = context.tokens(), most = at_once ? std::max<std::int64_t>(rows, 1) : stage_rows;
    const auto end = [&](std::size_t tile) { return std::min((static_cast<std::int64_t>(tile) + 1) * most, rows); };
    const auto tiles = static_cast<std::size_t>(std::max<std::int64_t>(ceil_divide(rows, most), 1));
    const auto alike = [&](std::size_t tile) { return end(tile) - end(tile - 1) == most; };
    repeat(context, tiles, alike, [&](std::size_t tile) { body(tile == 0 ? 0 : end(tile - 1), end(tile)); });
  }
};

}  // namespace fsdp::nn

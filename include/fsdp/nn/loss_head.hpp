// SPDX-License-Identifier: Apache-2.0
/// @file
/// The head of a language model: final norm, vocabulary projection and cross-entropy, tile by tile.
///
/// Loss and gradients are computed together, so that logits exist for one tile at a time and never as [tokens,
/// vocabulary]. If the logits of one tile are still too large, they exist for one block of the vocabulary at a time.
/// Tokens without a target are skipped. A head whose matrix is in float over 16-bit rows (PrecisionBy) computes as
/// LossHead in Fp32: it widens the rows of a tile, and rounds their dx once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/plan_of.hpp>
#include <tessera/fsdp/nn/projection.hpp>

namespace fsdp::nn {

/// The final norm and the vocabulary projection.
template <class V>
struct LossHeadFields {
  V norm, weight;  // [H], [V, H]
};

/// Final norm, logits and cross-entropy. Loss and gradients are computed together, one tile of tokens at a time.
template <class L>
struct LossHead : ModuleTypes<L, LossHeadFields> {
  FSDP_MODULE_TYPES(L, LossHeadFields)
  using Device = typename L::Device;

  static constexpr bool row_wise = true;  ///< each row's loss depends on that row only (StagedBlock)
  std::int64_t vocabulary = 0;
  std::int64_t hidden = 0;
  float eps = 1e-5f;
  bool tied = false;      ///< whether the weight is shared with the embedding
  bool in_float = false;  ///< whether the matrix is in float next to rows in 16 bits (PrecisionBy)

  Parameters parameters() const {
    return {norm_parameter("/model.norm.weight", hidden),
            {.name = tied ? "/model.embed_tokens.weight" : "/lm_head.weight",
             .shape = {vocabulary, hidden},
             .role = Role::table,
             .may_be_float = true,
             .tied_as = tied ? "lm_head.weight" : ""}};
  }

  /// Adds the sum of the tokens' negative log likelihoods to loss[0]; dx and the weights' gradients are the gradients
  /// of `scale` times that sum. Rows with a negative target are skipped, and their dx is 0. If all targets are
  /// negative, no gradient is written.
  void loss(Context<L>& context, const Weights& weights, const Gradients& gradients, Tensor<const Compute> x,
            const Targets& targets, float scale, Tensor<Compute> dx, Tensor<double> loss) const;

  /// Adds the same sum to loss[0] and computes no gradients.
  void loss_only(Context<L>& context, const Weights& weights, Tensor<const Compute> x, const Targets& targets,
                 Tensor<double> loss) const;

  std::int64_t logits_columns() const { return vocabulary; }
  /// Computes all logits [T, V]: for generation and tests, where T is small.
  void logits(Context<L>& context, const Weights& weights, Tensor<const Compute> x, Tensor<Compute> logits) const;

  /// If there are several tiles, the number of rows of a tile is a multiple of this. Buffers with one number per row
  /// then need no alignment padding, so that the planned size is exact to the byte.
  static constexpr std::int64_t row_step = device::alignment / std::int64_t{sizeof(float)};

  /// Returns the sizes that the tiling policy plans with. Tiles keep no activations.
  tiling::Problem problem(std::int64_t tokens) const;

  /// Returns the tiling plan. If the logits are computed in blocks of columns, the gradient recomputes all blocks but
  /// the last.
  tiling::TilePlan plan(Context<L>& context) const;

 private:
  template <class Other>
  friend struct LossHead;
  using Wide = LossHead<Local<Device, Fp32>>;
  static constexpr bool may_be_wide = has_float_weights<typename L::Precision>;

  /// Returns the head that computes for this one if `in_float`.
  Wide wide() const { return {{}, vocabulary, hidden, eps, tied}; }
  /// Calls body(head, context, weights) with this head, or with `wide` and the weights in float. Throws LogicError if
  /// the matrix is not in the type that `in_float` states.
  template <class Body>
  void compute(Context<L>& context, const Weights& weights, Body body) const {
    if constexpr (may_be_wide) {
      require((in_float ? weights.weight.is_float() : weights.weight.data() != nullptr), "loss head: the matrix is in ",
              in_float ? "16 bits" : "float", ", unlike LossHead::in_float; set that from UnitOptions::precision");
      if (in_float) {
        typename L::Frame frame(context.arena);
        const bool float_norm = weights.norm.is_float();
        Tensor<const float> norm = float_norm ? Tensor<const float>(weights.norm) : Tensor<const float>();  // [H]
        if (!float_norm) {
          const auto copy = frame.template allocate<float>({hidden});
          context.enqueue(device::Copy<Compute, float>{.x = weights.norm, .y = copy});
          norm = copy;
        }
        auto same = context.template in<Fp32>();
        return body(wide(), same, typename Wide::Weights{norm, weights.weight});
      }
    }
    body(*this, context, weights);
  }

  /// The computations, on the rows of a residual stream in X.
  /// @{
  template <class X>
  void loss_of(Context<L>& context, const Weights& weights, const Gradients& gradients, Tensor<const X> x,
               const Targets& targets, float scale, Tensor<X> dx, Tensor<double> loss) const;
  template <class X>
  void loss_only_of(Context<L>& context, const Weights& weights, Tensor<const X> x, const Targets& targets,
                    Tensor<double> loss) const;
  template <class X>
  void logits_of(Context<L>& context, const Weights& weights, Tensor<const X> x, Tensor<X> logits) const;
  /// @}

  /// Calls body(runs) with the rows of each tile of the valid rows.
  template <class Body>
  static void for_each_tile(Context<L>& context, const RowRuns& valid, const tiling::TilePlan& plan, Body body) {
    const RowTiles tiles(valid, plan.longest_tile());
    const auto alike = [&](std::size_t i) { return tiles.rows(i) == tiles.rows(i - 1); };
    repeat(context, tiles.size(), alike, [&](std::size_t i) { body(tiles[i]); });
  }

  /// The t rows of a tile, packed together. Matmuls may compute R >= t rows; the additional rows are zeros.
  struct Rows {
    Tensor<Compute> normed;        // [R, H], later overwritten with its gradient
    Tensor<float> rstd;            // [t]
    Tensor<std::int32_t> targets;  // [t]

    template <class T>
    Tensor<T> counted(Tensor<T> all) const {  // [R, columns] -> [t, columns]
      return all.slice(0, targets.numel());
    }
    void clear_others(Context<L>& context, Tensor<Compute> all) const {
      if (targets.numel() < all.rows())
        context.enqueue(device::Fill<Compute>{.y = all.slice(targets.numel(), all.rows()), .value = 0.0f});
    }
  };
  struct Blocks {
    Tensor<double> state;    // [t, 3]
    Tensor<Compute> logits;  // [R, c], logits of the last block
  };

  /// Returns how many rows matmuls compute for a tile of `rows`. This is the longest tile's number of rows if the
  /// matmul library would need more scratch for fewer rows (as oneDNN's bf16 matmuls with AMX do), since the plan
  /// reserves no more than the longest tile needs.
  std::int64_t computed_rows(Context<L>& context, std::int64_t rows, const tiling::TilePlan& plan) const {
    const std::int64_t longest = plan.longest_tile();
    if (rows == longest || context.plans->fixed()) return rows;
    const auto peaks = [&](std::int64_t tokens) -> const TilePlans::Peaks& {
      return context.plans->tile_peaks(typeid(Parameters), problem(tokens), plan.columns_per_block);
    };
    const auto &mine = peaks(rows), &most = peaks(longest);
    return std::equal(mine.begin(), mine.end(), most.begin(), std::less_equal<>()) ? rows : longest;
  }

  template <class X>
  Rows gather(Context<L>& context, const Weights& weights, Tensor<const X> x, const Targets& targets,
              const RowRuns& runs, const tiling::TilePlan& plan, typename L::Frame& frame) const {
    const std::int64_t tokens = count_rows(runs);
    const Rows rows{.normed = frame.template allocate<Compute>({computed_rows(context, tokens, plan), hidden}),
                    .rstd = frame.template allocate<float>({tokens}),
                    .targets = frame.template allocate<std::int32_t>({tokens})};
    std::int64_t row = 0;
    for (const RowRun& run : runs) {
      const std::int64_t end = row + run.rows();
      const Tensor<Compute> y = rows.normed.slice(row, end);
      context.enqueue(weights.norm, device::RmsNorm<Compute>{.x = widened_rows(context, x.slice(run.begin, run.end), y),
                                                             .eps = eps,
                                                             .y = y,
                                                             .rstd = rows.rstd.slice(row, end)});
      if constexpr (!Device::counts_only)
        device::move<Device>(context.stream, targets.device.data() + run.begin, rows.targets.data() + row, run.rows());
      row = end;
    }
    rows.clear_others(context, rows.normed);
    return rows;
  }
  /// Returns x in Compute: x itself, or `to` with the same values.
  template <class X>
  static Tensor<const Compute> widened_rows(Context<L>& context, Tensor<const X> x, Tensor<Compute> to) {
    if constexpr (std::is_same_v<X, Compute>)
      return x;
    else {
      context.enqueue(device::Copy<X, Compute>{.x = x, .y = to});
      return to;
    }
  }

  /// Computes loss and gradients over all columns at once. `normed` is overwritten with its gradient.
  void whole(Context<L>& context, const Weights& weights, const Gradients& gradients, const Rows& rows, float scale,
             Tensor<double> loss) const {
    typename L::Frame frame(context.arena);
    const auto logits = frame.template allocate<Compute>({rows.normed.rows(), vocabulary});  // [R, V], then dlogits
    project<L, 1>(context, rows.normed, {weights.weight}, {logits});
    context.progress();
    context.enqueue(device::CrossEntropy<Compute>{
        .logits = rows.counted(logits), .targets = rows.targets, .scale = scale, .loss = loss});
    rows.clear_others(context, logits);
    project_backward_weight<L, 1>(context, {logits}, rows.normed, {gradients.weight});
    context.progress();
    project_backward_input<L, 1, Compute>(context, {logits}, {weights.weight}, rows.normed);
    context.progress();
  }

  /// Computes the same as `whole` in blocks of columns, in two passes: forward for log-sum-exp, then in reverse for the
  /// gradient.
  void blocks(Context<L>& context, const Weights& weights, const Gradients& gradients, const Rows& rows,
              std::int64_t columns, float scale, Tensor<double> loss) const {
    typename L::Frame frame(context.arena);
    const auto sum = frame.template allocate<float>({rows.normed.rows(), hidden});  // [R, H], the gradient of normed
    const Blocks all = fold_blocks(context, weights, rows, columns, frame);
    context.enqueue(device::CrossEntropySum{.state = all.state, .loss = loss});
    const bool written = *gradients.weight.written;
    const std::int64_t last = (vocabulary - 1) / columns * columns;
    for (std::int64_t begin = last; begin >= 0; begin -= columns) {
      const std::int64_t end = std::min(begin + columns, vocabulary);
      const auto logits = block_of(all.logits, end - begin);
      if (begin != last) {
        project<L, 1>(context, rows.normed, {weights.weight.slice(begin, end)}, {logits});
        context.progress();
      }
      context.enqueue(device::CrossEntropyGradient<Compute>{
          .logits = rows.counted(logits), .first = begin, .targets = rows.targets, .scale = scale, .state = all.state});
      rows.clear_others(context, logits);
      bool first = written;  // every block writes its own part of the gradient
      project_backward_weight<L, 1>(context, {logits}, rows.normed, {gradients.weight.rows(begin, end, &first)});
      context.progress();
      project_backward_input<L, 1, float>(context, {logits}, {weights.weight.slice(begin, end)}, sum,
                                          begin == last ? Write::overwrite : Write::accumulate);
      context.progress();
    }
    *gradients.weight.written = true;
    context.enqueue(device::Copy<float, Compute>{.x = sum, .y = rows.normed});
  }

  /// Returns the cross-entropy state over all blocks; `logits` retains the last block's logits.
  Blocks fold_blocks(Context<L>& context, const Weights& weights, const Rows& rows, std::int64_t columns,
                     typename L::Frame& frame) const {
    const Blocks all{.state = frame.template allocate<double>({rows.targets.numel(), device::cross_entropy_state}),
                     .logits = frame.template allocate<Compute>({rows.normed.rows(), columns})};
    for (std::int64_t begin = 0; begin < vocabulary; begin += columns) {
      const std::int64_t end = std::min(begin + columns, vocabulary);
      const auto logits = block_of(all.logits, end - begin);
      project<L, 1>(context, rows.normed, {weights.weight.slice(begin, end)}, {logits});
      context.progress();
      context.enqueue(device::CrossEntropyFold<Compute>{
          .logits = rows.counted(logits), .first = begin, .targets = rows.targets, .state = all.state});
    }
    return all;
  }
  static Tensor<Compute> block_of(Tensor<Compute> logits, std::int64_t columns) {
    return {logits.data(), {logits.rows(), columns}};
  }
};

template <class L>
void LossHead<L>::loss(Context<L>& context, const Weights& weights, const Gradients& gradients, Tensor<const Compute> x,
                       const Targets& targets, float scale, Tensor<Compute> dx, Tensor<double> loss) const {
  compute(context, weights, [&](const auto& head, auto& in, const auto& own) {
    head.template loss_of<Compute>(in, own, gradients, x, targets, scale, dx, loss);
  });
}

template <class L>
template <class X>
void LossHead<L>::loss_of(Context<L>& context, const Weights& weights, const Gradients& gradients, Tensor<const X> x,
                          const Targets& targets, float scale, Tensor<X> dx, Tensor<double> loss) const {
  const tiling::TilePlan plan = this->plan(context);
  const RowRuns valid = valid_rows(targets.host, Device::counts_only);
  for (const RowRun& gap : rows_between(valid, targets.host.numel()))
    context.enqueue(device::Fill<X>{.y = dx.slice(gap.begin, gap.end), .value = 0.0f});
  for_each_tile(context, valid, plan, [&](const RowRuns& runs) {
    typename L::Frame frame(context.arena);
    const Rows rows = gather(context, weights, x, targets, runs, plan, frame);
    if (plan.columns_per_block > 0)
      blocks(context, weights, gradients, rows, plan.columns_per_block, scale, loss);
    else
      whole(context, weights, gradients, rows, scale, loss);
    std::int64_t row = 0;
    for (const RowRun& run : runs) {
      const std::int64_t end = row + run.rows();
      const Tensor<Compute> dy = rows.normed.slice(row, end);
      const auto backward = [&](Tensor<const Compute> from, Tensor<Compute> to) {
        context.enqueue(weights.norm, device::RmsNormBackward<Compute>{.x = from,
                                                                       .rstd = rows.rstd.slice(row, end),
                                                                       .dy = dy,
                                                                       .dx = to,
                                                                       .dx_write = Write::overwrite,
                                                                       .dw = gradients.norm.tensor,
                                                                       .dw_write = gradients.norm.next()});
      };
      const Tensor<const X> from = x.slice(run.begin, run.end);
      if constexpr (std::is_same_v<X, Compute>) {
        backward(from, dx.slice(run.begin, run.end));
      } else {
        typename L::Frame inner(context.arena);
        backward(widened_rows(context, from, inner.template allocate<Compute>(dy.shape())), dy);
        context.enqueue(device::Copy<Compute, X>{.x = dy, .y = dx.slice(run.begin, run.end)});
      }
      row = end;
    }
  });
}

template <class L>
void LossHead<L>::loss_only(Context<L>& context, const Weights& weights, Tensor<const Compute> x,
                            const Targets& targets, Tensor<double> loss) const {
  compute(context, weights, [&](const auto& head, auto& in, const auto& own) {
    head.template loss_only_of<Compute>(in, own, x, targets, loss);
  });
}

template <class L>
template <class X>
void LossHead<L>::loss_only_of(Context<L>& context, const Weights& weights, Tensor<const X> x, const Targets& targets,
                               Tensor<double> loss) const {
  const tiling::TilePlan plan = this->plan(context);
  for_each_tile(context, valid_rows(targets.host, Device::counts_only), plan, [&](const RowRuns& runs) {
    typename L::Frame frame(context.arena);
    const Rows rows = gather(context, weights, x, targets, runs, plan, frame);
    if (plan.columns_per_block > 0) {
      const Blocks all = fold_blocks(context, weights, rows, plan.columns_per_block, frame);
      context.enqueue(device::CrossEntropySum{.state = all.state, .loss = loss});
      return;
    }
    const auto logits = frame.template allocate<Compute>({rows.normed.rows(), vocabulary});  // [R, V]
    project<L, 1>(context, rows.normed, {weights.weight}, {logits});
    context.progress();
    context.enqueue(
        device::CrossEntropyLoss<Compute>{.logits = rows.counted(logits), .targets = rows.targets, .loss = loss});
  });
}

template <class L>
void LossHead<L>::logits(Context<L>& context, const Weights& weights, Tensor<const Compute> x,
                         Tensor<Compute> logits) const {
  compute(context, weights,
          [&](const auto& head, auto& in, const auto& own) { head.template logits_of<Compute>(in, own, x, logits); });
}

template <class L>
template <class X>
void LossHead<L>::logits_of(Context<L>& context, const Weights& weights, Tensor<const X> x, Tensor<X> logits) const {
  typename L::Frame frame(context.arena);
  const auto normed = frame.template allocate<Compute>({x.rows(), hidden});  // [T, H]
  const auto rstd = frame.template allocate<float>({x.rows()});              // [T]
  context.enqueue(weights.norm, device::RmsNorm<Compute>{
                                    .x = widened_rows(context, x, normed), .eps = eps, .y = normed, .rstd = rstd});
  if constexpr (std::is_same_v<X, Compute>)
    return project<L, 1>(context, normed, {weights.weight}, {logits});
  else {
    const auto sums = frame.template allocate<Compute>(logits.shape());  // [T, V]
    project<L, 1>(context, normed, {weights.weight}, {sums});
    context.enqueue(device::Copy<Compute, X>{.x = sums, .y = logits});
  }
}

template <class L>
tiling::Problem LossHead<L>::problem(std::int64_t tokens) const {
  if constexpr (may_be_wide)
    if (in_float) return wide().problem(tokens);
  constexpr auto size = std::int64_t{sizeof(Compute)};
  constexpr auto wide = std::int64_t{sizeof(typename L::Accumulate)};
  return {.tokens = tokens,
          .columns = vocabulary,
          .tile_bytes_per_token = hidden * size + std::int64_t{sizeof(float) + sizeof(std::int32_t)},
          .tile_bytes_per_token_column = size,
          .blocked_bytes_per_token =
              hidden * std::int64_t{sizeof(float)} + device::cross_entropy_state * std::int64_t{sizeof(double)},
          .traffic_per_tile = vocabulary * hidden * (2 * size + 2 * wide),  // forward, dx; gradient read and written
          .flops_per_byte = device::flops_per_byte<Device>};
}

template <class L>
tiling::TilePlan LossHead<L>::plan(Context<L>& context) const {
  if constexpr (may_be_wide)
    if (in_float) {
      auto same = context.template in<Fp32>();
      return wide().plan(same);
    }
  tiling::TilePlan plan = plan_of(context, *this);
  if (plan.tiles.size() > 1 && plan.longest_tile() % row_step != 0 && plan.longest_tile() > row_step) {
    std::vector<tiling::Tile> tiles;
    append_tiles(tiles, 0, context.tokens(), plan.longest_tile() / row_step * row_step, false);
    plan = with_costs(problem(context.tokens()), std::move(tiles), plan.columns_per_block);
  }
  if (const std::int64_t block = plan.columns_per_block; block > 0)
    plan.recomputed_flops = 2 * context.tokens() * hidden * ((vocabulary - 1) / block * block);
  return plan;
}

}  // namespace fsdp::nn

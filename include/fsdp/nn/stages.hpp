// SPDX-License-Identifier: Apache-2.0
/// @file
/// Stages: the parts of a block's computation when K ranks share the rows of a micro-batch. The ranks exchange rows
/// between stages.
///
/// The N rows are all tokens of a micro-batch. Each rank owns a contiguous range of rows. Token-wise work runs on these
/// rows, in the stages `before` and `after`. Between these two, the middle (attention) mixes tokens: each rank computes
/// it on all rows, for its share of the heads. An executor exchanges matrices between the stages; a block is
/// independent of ranks and messages. The middle may also be computed in P parts, a few heads at a time, which reduces
/// peak memory.
///
/// The heads are therefore cut into K P equal ranges (equal_ranges). Part p of rank r is range r P + p. Two contexts:
/// `rows` has one sequence (the rank's own rows), no documents, and a Noise that begins at the first of these rows;
/// `all` has the sequences and documents of the whole micro-batch.
///
/// Some of the matrices that the middle reads may be common to all parts of a rank, such as keys and values that
/// several query heads share. They are the last `common_inputs` inputs. They are exchanged once: `before` writes them
/// in the first part, the parts of `between_backward` accumulate their gradient, and `before_backward` receives it in
/// the last part. In the other parts these stages receive empty tensors instead.
///
/// Forward, then backward, for the parts in order:
///
/// | stage | reads | writes |
/// | --- | --- | --- |
/// | before | x | in[r][i], input i of the middle for own rows and the heads of each rank r, contiguous |
/// | between | in[i] of all rows | out of all rows, for one range; may change `in`, which backward then reads |
/// | after | x, outs of all ranges, own rows | y |
/// | after_again | the same | the tensors that `after` saves for backward; no y |
/// | after_backward | outs, dy | douts, which may be the outs; dy becomes the middle residual's gradient |
/// | between_backward | in, out, dout of all rows | din, for one range |
/// | before_backward | din, of own rows | adds to dy, which after the last part is the gradient of x |
///
/// `before` and `before_backward` are called for each part, with the K ranges of that part; `after` and
/// `after_backward` once, with all ranges.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/nn/module.hpp>

namespace fsdp::nn {

/// A range [begin, end) of query heads, or of other equal shares of a block's middle: the heads of one part of a rank.
struct HeadRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t rank_begin = begin;  ///< heads of all parts of its rank: [rank_begin, rank_end)
  std::int64_t rank_end = end;

  constexpr std::int64_t size() const { return end - begin; }  ///< number of heads
  friend constexpr bool operator==(const HeadRange&, const HeadRange&) = default;
};

/// One of `count` parts of the middle.
struct Part {
  std::span<const HeadRange> ranges;  // [K], this part's range of each rank
  int index = 0;
  int count = 1;

  /// Whether one rank computes the whole middle in one part.
  bool whole() const { return count == 1 && ranges.size() == 1; }
};

/// Cuts [0, shares) into equal ranges, in order, for each part of each rank. Throws InputError, which lists the valid
/// numbers of ranges, unless ranks * parts divides `shares`.
inline std::vector<HeadRange> equal_ranges(std::int64_t shares, std::int64_t ranks, std::int64_t parts) {
  const std::int64_t count = ranks * parts;
  require<InputError>(shares > 0, "stages: a block has ", shares, " heads to share; give at least 1");
  if (count < 1 || shares % count != 0) {
    std::string divisors;
    for (std::int64_t divisor = 1; divisor <= shares; ++divisor)
      if (shares % divisor == 0) divisors += (divisors.empty() ? "" : ", ") + std::to_string(divisor);
    throw InputError(message("stages: ", shares, " heads cannot be cut into ", count,
                             " equal ranges, one for each rank of a sequence and each part; take ", divisors));
  }
  std::vector<HeadRange> ranges;
  for (std::int64_t i = 0, each = shares / count; i < count; ++i) {
    const std::int64_t rank = i / parts * parts;
    ranges.push_back({i * each, (i + 1) * each, rank * each, (rank + parts) * each});
  }
  return ranges;
}

/// Returns the number of the middle's inputs that are common to all parts of a rank: M::common_inputs, or 0 if M does
/// not define it.
template <class M>
constexpr std::size_t common_inputs() {
  if constexpr (requires { M::common_inputs; })
    return M::common_inputs;
  else
    return 0;
}

/// The input matrices of a block's middle: of all rows and one range, or of own rows for one rank.
template <class M>
using StageInputs = std::array<Tensor<typename M::Compute>, M::inputs>;

/// A type that defines a block's stages: the block itself, or a wrapper that composes its parts
/// (tessera/fsdp/sequence/staged_block.hpp). `RowsSaved` contains the tensors that the work on own rows saves for
/// backward, `HeadsSaved` those that the middle saves for one range. `before` of part 0 and `between` set them, with
/// memory from their context's `save`. `inputs` is the number of matrices that the middle reads; `shares` is the number
/// of heads, a multiple of K P; `input_columns` and `output_columns` are the numbers of columns of the inputs and the
/// output for a range. Common inputs have the same columns for all ranges of a rank.
template <class M, class L>
concept StagedBlock = requires(const M block, Context<L>& context, const typename M::Shared& shared,
                               const typename M::Weights& weights, const typename M::Gradients& gradients,
                               typename M::RowsSaved& rows, typename M::HeadsSaved& heads,
                               Tensor<const typename L::Compute> x, Tensor<typename L::Compute> y, const Part& part,
                               const HeadRange& range, std::span<const HeadRange> ranges, const StageInputs<M>& in,
                               std::span<const StageInputs<M>> each,
                               std::span<const Tensor<typename L::Compute>> outs) {
  { block.shares() } -> std::same_as<std::int64_t>;
  { block.input_columns(range) } -> std::same_as<std::array<std::int64_t, M::inputs>>;
  { block.output_columns(range) } -> std::same_as<std::int64_t>;
  block.before(context, shared, weights, rows, x, part, each);
  block.between(context, shared, weights, heads, range, in, y);
  block.after(context, shared, weights, rows, x, ranges, outs, y);
  block.after_again(context, shared, weights, rows, x, ranges, outs);
  block.after_backward(context, shared, weights, gradients, std::as_const(rows), ranges, outs, y, outs);
  block.between_backward(context, shared, weights, gradients, std::as_const(heads), range, in, x, x, in);
  block.before_backward(context, shared, weights, gradients, std::as_const(rows), part, each, y);
};

namespace detail {

/// Whether a block defines either no stage or all stages.
template <class M, class L>
concept StagesOrNot = (
                          !requires { &M::shares; } && !requires { &M::input_columns; } &&
                          !requires { &M::output_columns; } && !requires { &M::before; } &&
                          !requires { &M::between; } && !requires { &M::after; } && !requires { &M::after_again; } &&
                          !requires { &M::after_backward; } && !requires { &M::between_backward; } &&
                          !requires { &M::before_backward; }) ||
                      StagedBlock<M, L>;

}  // namespace detail

/// Checks that a block that defines a stage, or that a Recomputed wraps, defines all stages, with the right types, and
/// has no more common inputs than inputs.
template <class M, class L>
consteval bool check_stages() {
  if constexpr (requires { typename M::Wrapped; }) check_stages<typename M::Wrapped, L>();
  if constexpr (requires { M::inputs; })
    static_assert(common_inputs<M>() <= M::inputs,
                  "fsdp: a block's common_inputs is above its inputs; common are the last of the matrices that its "
                  "middle reads, at most all of them; see tessera/fsdp/nn/stages.hpp");
  static_assert(detail::StagesOrNot<M, L>,
                "fsdp: a block states some of its stages, and not all with the arguments that ranks need to share a "
                "sequence: RowsSaved, HeadsSaved, inputs, shares, input_columns, output_columns, before, between, "
                "after, after_again, after_backward, between_backward, before_backward; see StagedBlock in "
                "tessera/fsdp/nn/stages.hpp");
  return true;
}

}  // namespace fsdp::nn

// Compiled into the library.
FSDP_LIST(fsdp::nn::HeadRange)

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Buffers of attention as a module allocates them, and comparisons with float64.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "reference.hpp"

namespace fsdp::device::reference {

/// The columns of q, k or v (index 0, 1, 2) in a matrix with q, k and v as adjacent columns.
template <class T>
Tensor<T> part_of(Tensor<T> qkv, const AttentionShape& shape, int index) {
  const std::int64_t q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
  return qkv.slice_columns(index == 0 ? 0 : q + (index - 1) * kv, q + index * kv);
}

/// The buffers of a module, on the ranks of any device: q, k and v are columns of one matrix, and so are their
/// gradients.
template <class T, class R = Rank>
struct Buffers {
  /// Padding in elements between the rows of qkv, dqkv, out and dout.
  using Gaps = std::array<std::int64_t, 4>;

  Buffers(R& rank, const AttentionShape& s, const Gaps& gaps = {3, 5, 1, 2})
      : shape(s),
        columns((s.heads + 2 * s.kv_heads) * s.head_dim),
        qkv(rank, Matrix<T>::random(1, s.tokens(), columns, gaps[0], 1.5)),
        dqkv(rank, {s.tokens(), columns, gaps[1]}),
        out(rank, {s.tokens(), s.heads * s.head_dim, gaps[2]}),
        dout(rank, Matrix<T>::random(2, s.tokens(), s.heads * s.head_dim, gaps[3])),
        lse(rank, {s.sequences * s.heads, s.sequence_length}) {}
  Buffers(R& rank, const AttentionShape& s, std::int64_t gap) : Buffers(rank, s, Gaps{gap, gap, gap, gap}) {}

  Tensor<T> part(Held<R, T>& matrix, int index) const { return part_of(matrix.view(), shape, index); }
  void forward(R& rank) {
    enqueue(
        rank.stream,
        Attention<T>{.shape = shape, .q = part(qkv, 0), .k = part(qkv, 1), .v = part(qkv, 2), .out = out, .lse = lse});
  }
  void backward(R& rank) {
    enqueue(rank.stream, AttentionBackward<T>{.shape = shape,
                                              .q = part(qkv, 0),
                                              .k = part(qkv, 1),
                                              .v = part(qkv, 2),
                                              .out = out,
                                              .lse = lse,
                                              .dout = dout,
                                              .dq = part(dqkv, 0),
                                              .dk = part(dqkv, 1),
                                              .dv = part(dqkv, 2)});
  }
  void run(R& rank) {
    forward(rank);
    backward(rank);
  }
  Values values(Held<R, T>& matrix, int index) const { return values_of(part_of(matrix.back().view(), shape, index)); }
  Inputs inputs() { return {values(qkv, 0), values(qkv, 1), values(qkv, 2), dout.values()}; }
  Results results() { return {out.values(), lse.values(), values(dqkv, 0), values(dqkv, 1), values(dqkv, 2)}; }
  bool gaps_untouched() { return out.gaps_untouched() && dqkv.gaps_untouched(); }

  AttentionShape shape;
  std::int64_t columns;
  Held<R, T> qkv, dqkv, out, dout;
  Held<R, float> lse;
};

template <class T>
Inputs inputs_of(const AttentionShape& shape) {
  Rank rank(1, 0);
  return Buffers<T>(rank, shape).inputs();
}

/// A rank with enough scratch for all shapes of these tests.
struct Worker : Rank {
  explicit Worker(int threads) : Rank(threads, std::int64_t{16} << 20) {}
};

template <class T>
Errors run(const AttentionShape& shape, int threads, const Results& expected) {
  Worker rank(threads);
  Buffers<T> buffers(rank, shape);
  buffers.run(rank);
  EXPECT_TRUE(buffers.gaps_untouched());
  EXPECT_EQ(rank.arena.used(), 0);
  std::int64_t squares = 0;
  for (std::int64_t token = 0; token < shape.tokens(); ++token)  // 1 + 3 + 5 + ... of each document
    squares += 2 * (token - static_cast<std::int64_t>(first_key_of(shape, token))) + 1;
  EXPECT_EQ(rank.stream.counters.attention_flops, 7 * shape.heads * shape.head_dim * squares);
  return errors(buffers.results(), expected);
}

/// Expects the results of the reference, within the rounding of float.
inline void expect_in_float(const AttentionShape& shape, const std::vector<int>& teams, double bound) {
  const Results expected = attend(shape, inputs_of<float>(shape), Rounding::none);
  for (const int threads : teams) {
    const Errors found = run<float>(shape, threads, expected);
    for (const double error : {found.out, found.lse, found.dq, found.dk, found.dv})
      EXPECT_LT(error, bound) << name(shape, threads);
  }
}

/// Expects that forward and backward use exactly the scratch planned for `planned`, a shape of the same sizes.
template <class T>
void expect_planned_scratch(const AttentionShape& shape, const AttentionShape& planned, int threads) {
  const Cpu::Planner planner(threads);
  for (const bool backward : {false, true}) {
    const std::int64_t bytes = backward ? scratch(planner, AttentionBackward<T>{.shape = planned})
                                        : scratch(planner, Attention<T>{.shape = planned});
    Rank rank(threads, bytes);
    Buffers<T> buffers(rank, shape);
    backward ? buffers.backward(rank) : buffers.forward(rank);
    EXPECT_EQ(rank.arena.peak(), bytes) << name(shape, threads);
    EXPECT_EQ(rank.arena.peak_scratch(), bytes) << name(shape, threads);
  }
}

/// Expects that two runs on one rank are bit-identical.
template <class T, class R>
void expect_repeated(R& rank, const AttentionShape& shape, const std::array<std::int64_t, 4>& gaps = {3, 5, 1, 2}) {
  Buffers<T, R> first(rank, shape, gaps), second(rank, shape, gaps);
  first.run(rank);
  second.run(rank);
  EXPECT_TRUE(first.results() == second.results());
}

}  // namespace fsdp::device::reference

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention in float64, one number at a time, and buffers as a module allocates them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "reference.hpp"

namespace fsdp::device::reference {

struct Inputs {
  Values q, k, v, dout;  // [T, heads * d] or [T, kv_heads * d]
};
struct Results {
  Values out, lse, dq, dk, dv;
  friend bool operator==(const Results&, const Results&) = default;
};

/// Returns x, rounded to bf16 if `as_bf16` is set.
inline double kept(double x, bool as_bf16) {
  return as_bf16 ? static_cast<double>(static_cast<float>(bf16(static_cast<float>(x)))) : x;
}

/// The intermediate values that the float64 reference rounds to bf16.
enum class Rounding {
  none,
  operands,  ///< P, dS and all outputs: the roundings that every computation with bf16 matmuls makes
  stored     ///< also scores and dP: every matrix that an unblocked bf16 computation stores
};

/// The first key that a token attends to, computed without the code under test.
inline std::size_t first_key_of(const AttentionShape& shape, std::int64_t token) {
  const std::int64_t first = first_of_document(shape.documents, shape.sequence_length, token);
  return static_cast<std::size_t>(shape.window > 0 ? std::max(first, token - shape.window + 1) : first);
}

/// Offsets and strides of the rows of one head of one sequence.
struct Head {
  std::size_t q, kv, q_stride, kv_stride, d;
  const double* row(const Values& x, bool key, std::size_t t) const {
    return x.data() + (key ? kv + t * kv_stride : q + t * q_stride);
  }
};

/// Unblocked attention in float64; query t attends to keys from first_key[t] on.
inline void attend(const Head& head, const std::vector<std::size_t>& first_key, const Inputs& in, Rounding rounding,
                   Results& r, double* lse) {
  const bool as_bf16 = rounding != Rounding::none, stored = rounding == Rounding::stored;
  const std::size_t length = first_key.size();
  const double scale = 1 / std::sqrt(static_cast<double>(head.d));
  const auto product = [&](const double* a, const double* b) { return std::inner_product(a, a + head.d, b, 0.0); };
  const auto add = [&](double factor, const double* from, double* to) {
    for (std::size_t c = 0; c < head.d; ++c) to[c] += factor * from[c];
  };
  const auto output = [](const double* row) { return const_cast<double*>(row); };
  Values p(length), dp(length);
  for (std::size_t i = 0; i < length; ++i) {
    double sum = 0, delta = 0, most = -std::numeric_limits<double>::infinity();
    for (std::size_t j = first_key[i]; j <= i; ++j)
      most = std::max(most, p[j] = kept(scale * product(head.row(in.q, false, i), head.row(in.k, true, j)), stored));
    for (std::size_t j = first_key[i]; j <= i; ++j) sum += p[j] = std::exp(p[j] - most);
    lse[i] = most + std::log(sum);
    double* const out = output(head.row(r.out, false, i));
    for (std::size_t j = first_key[i]; j <= i; ++j) {
      p[j] /= sum;
      dp[j] = kept(product(head.row(in.dout, false, i), head.row(in.v, true, j)), stored);
      add(kept(p[j], as_bf16), head.row(in.v, true, j), out);
    }
    for (std::size_t c = 0; c < head.d; ++c) delta += (out[c] = kept(out[c], as_bf16)) * head.row(in.dout, false, i)[c];
    for (std::size_t j = first_key[i]; j <= i; ++j) {
      const double ds = kept(p[j] * (dp[j] - delta), as_bf16);
      add(kept(p[j], as_bf16), head.row(in.dout, false, i), output(head.row(r.dv, true, j)));
      add(scale * ds, head.row(in.q, false, i), output(head.row(r.dk, true, j)));
      add(scale * ds, head.row(in.k, true, j), output(head.row(r.dq, false, i)));
    }
  }
}

inline Results attend(const AttentionShape& shape, const Inputs& in, Rounding rounding) {
  const auto length = static_cast<std::size_t>(shape.sequence_length), d = static_cast<std::size_t>(shape.head_dim);
  const auto heads = static_cast<std::size_t>(shape.heads), kv_heads = static_cast<std::size_t>(shape.kv_heads);
  Results r{.out = Values(in.q.size()),
            .lse = Values(static_cast<std::size_t>(shape.tokens()) * heads),
            .dq = Values(in.q.size()),
            .dk = Values(in.k.size()),
            .dv = Values(in.k.size())};
  for (std::size_t sequence = 0; sequence < static_cast<std::size_t>(shape.sequences); ++sequence)
    for (std::size_t h = 0; h < heads; ++h) {
      const Head head{.q = (sequence * length * heads + h) * d,
                      .kv = (sequence * length * kv_heads + h / (heads / kv_heads)) * d,
                      .q_stride = heads * d,
                      .kv_stride = kv_heads * d,
                      .d = d};
      std::vector<std::size_t> first_key;
      for (std::size_t t = 0; t < length; ++t)
        first_key.push_back(first_key_of(shape, static_cast<std::int64_t>(sequence * length + t)) - sequence * length);
      attend(head, first_key, in, rounding, r, r.lse.data() + (sequence * heads + h) * length);
    }
  for (Values* values : {&r.dq, &r.dk, &r.dv})
    for (double& value : *values) value = kept(value, rounding != Rounding::none);
  return r;
}

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

/// L2 norm of the difference, relative to the L2 norm of the reference. Elements of the reference count as at least
/// 0.1, because the gradient of a softmax over few keys is a small difference of large numbers.
inline double relative(const Values& found, const Values& expected) {
  const auto [error, norm] = error_and_norm(found, expected);
  return error / std::max(norm, 0.1 * std::sqrt(static_cast<double>(found.size())));
}

/// A rank with enough scratch for all shapes of these tests.
struct Worker : Rank {
  explicit Worker(int threads) : Rank(threads, std::int64_t{16} << 20) {}
};

struct Errors {
  double out, lse, dq, dk, dv;
};
inline Errors errors(const Results& found, const Results& expected) {
  return {relative(found.out, expected.out), relative(found.lse, expected.lse), relative(found.dq, expected.dq),
          relative(found.dk, expected.dk), relative(found.dv, expected.dv)};
}

inline std::string name(const AttentionShape& s, int threads) {
  return message(s.sequences, " x ", s.sequence_length, ", heads ", s.heads, "/", s.kv_heads, " of ", s.head_dim, ", ",
                 threads, " threads", s.documents.empty() ? "" : ", packed",
                 s.window > 0 ? message(", window ", s.window) : "");
}

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

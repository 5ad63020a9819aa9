// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention in float64, one number at a time, and the memory that a module would hold for it.
#pragma once

#include <limits>
#include <numeric>

#include "reference.hpp"

namespace fsdp::device::reference {

struct Inputs {
  Values q, k, v, dout;  // [T, heads * d] or [T, kv_heads * d]
};
struct Results {
  Values out, lse, dq, dk, dv;
};

/// Nearest bf16, or x itself.
inline double kept(double x, bool as_bf16) {
  return as_bf16 ? static_cast<double>(static_cast<float>(bf16(static_cast<float>(x)))) : x;
}

/// Where float64 is rounded to bf16.
enum class Rounding {
  none,
  operands,  ///< P, dS and all that is written: what a computation must round that multiplies in bf16
  stored     ///< scores and dP too: every matrix that an unblocked computation in bf16 keeps
};

/// The first key that a token sees, found without the code under test.
inline std::size_t first_key_of(const AttentionShape& shape, std::int64_t token) {
  std::int64_t first = token - token % shape.sequence_length;
  for (const std::int64_t begin : shape.documents)
    if (begin <= token) first = std::max(first, begin);
  if (shape.window > 0) first = std::max(first, token - shape.window + 1);
  return static_cast<std::size_t>(first);
}

/// One head of one sequence: where its rows lie.
struct Head {
  std::size_t q, kv, q_stride, kv_stride, d;
  const double* row(const Values& x, bool key, std::size_t t) const {
    return x.data() + (key ? kv + t * kv_stride : q + t * q_stride);
  }
};

/// Unblocked attention in float64, each query with the keys from `first_key` of it on.
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

/// The columns of q, k or v (index 0, 1, 2) in a matrix that holds them side by side.
template <class T>
Tensor<T> part_of(Tensor<T> qkv, const AttentionShape& shape, int index) {
  const std::int64_t q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
  return qkv.slice_columns(index == 0 ? 0 : q + (index - 1) * kv, q + index * kv);
}

/// What a module holds: q, k and v are columns of one matrix, so are their gradients.
template <class T>
struct Buffers {
  explicit Buffers(const AttentionShape& s)
      : shape(s),
        columns((s.heads + 2 * s.kv_heads) * s.head_dim),
        qkv(Matrix<T>::random(1, s.tokens(), columns, 3, 1.5)),
        dqkv(s.tokens(), columns, 5),
        out(s.tokens(), s.heads * s.head_dim, 1),
        dout(Matrix<T>::random(2, s.tokens(), s.heads * s.head_dim, 2)),
        lse(s.sequences * s.heads, s.sequence_length) {}

  Tensor<T> part(Matrix<T>& matrix, int index) const { return part_of(matrix.view(), shape, index); }
  void forward(Cpu::Stream& stream) {
    device::enqueue(stream, device::Attention<T>{.shape = shape,
                                                 .q = part(qkv, 0),
                                                 .k = part(qkv, 1),
                                                 .v = part(qkv, 2),
                                                 .out = out.view(),
                                                 .lse = lse.view()});
  }
  void backward(Cpu::Stream& stream) {
    device::enqueue(stream, device::AttentionBackward<T>{.shape = shape,
                                                         .q = part(qkv, 0),
                                                         .k = part(qkv, 1),
                                                         .v = part(qkv, 2),
                                                         .out = out.input(),
                                                         .lse = lse.input(),
                                                         .dout = dout.input(),
                                                         .dq = part(dqkv, 0),
                                                         .dk = part(dqkv, 1),
                                                         .dv = part(dqkv, 2)});
  }
  Values values(Matrix<T>& matrix, int index) const { return values_of(part(matrix, index)); }
  Inputs inputs() { return {values(qkv, 0), values(qkv, 1), values(qkv, 2), dout.values()}; }
  Results results() { return {out.values(), lse.values(), values(dqkv, 0), values(dqkv, 1), values(dqkv, 2)}; }

  AttentionShape shape;
  std::int64_t columns;
  Matrix<T> qkv, dqkv, out, dout;
  Matrix<float> lse;
};

/// L2 norm of the difference over that of the reference; the reference counts as 0.1 an element at least, because the
/// gradient of a softmax over few keys is the small difference of large numbers.
inline double relative(const Values& found, const Values& expected) {
  if (found.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    error += (found[i] - expected[i]) * (found[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(error / std::max(norm, 1e-2 * static_cast<double>(found.size())));
}

/// A rank with room for the scratch of all these.
struct Worker {
  explicit Worker(int threads) : arena(ledger, std::int64_t{16} << 20), stream(arena, threads) {}
  Ledger ledger;
  Cpu::Arena arena;
  Cpu::Stream stream;
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
  Buffers<T> buffers(shape);
  buffers.forward(rank.stream);
  buffers.backward(rank.stream);
  EXPECT_TRUE(buffers.out.gaps_untouched() && buffers.dqkv.gaps_untouched());
  EXPECT_EQ(rank.arena.used(), 0);
  std::int64_t squares = 0;
  for (std::int64_t token = 0; token < shape.tokens(); ++token)  // 1 + 3 + 5 + ... of each document
    squares += 2 * (token - static_cast<std::int64_t>(first_key_of(shape, token))) + 1;
  EXPECT_EQ(rank.stream.counters.attention_flops, 7 * shape.heads * shape.head_dim * squares);
  return errors(buffers.results(), expected);
}

}  // namespace fsdp::device::reference

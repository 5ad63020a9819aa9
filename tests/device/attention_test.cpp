// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <numeric>

#include "reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

struct Inputs {
  Values q, k, v, dout;  // [T, heads * d] or [T, kv_heads * d]
};
struct Results {
  Values out, lse, dq, dk, dv;
};

/// Nearest bf16, or x itself.
double kept(double x, bool as_bf16) {
  return as_bf16 ? static_cast<double>(static_cast<float>(bf16(static_cast<float>(x)))) : x;
}

/// One head of one sequence: where its rows lie.
struct Head {
  std::size_t q, kv, q_stride, kv_stride, d;
  const double* row(const Values& x, bool key, std::size_t t) const {
    return x.data() + (key ? kv + t * kv_stride : q + t * q_stride);
  }
};

/// Unblocked attention in float64; `as_bf16` rounds where a bf16 computation would: P, dS and all that is written.
void attend(const Head& head, std::size_t length, const Inputs& in, bool as_bf16, Results& r, double* lse) {
  const double scale = 1 / std::sqrt(static_cast<double>(head.d));
  const auto product = [&](const double* a, const double* b) { return std::inner_product(a, a + head.d, b, 0.0); };
  const auto add = [&](double factor, const double* from, double* to) {
    for (std::size_t c = 0; c < head.d; ++c) to[c] += factor * from[c];
  };
  const auto output = [](const double* row) { return const_cast<double*>(row); };
  Values p(length), dp(length);
  for (std::size_t i = 0; i < length; ++i) {
    double sum = 0, delta = 0, most = -std::numeric_limits<double>::infinity();
    for (std::size_t j = 0; j <= i; ++j)
      most = std::max(most, p[j] = scale * product(head.row(in.q, false, i), head.row(in.k, true, j)));
    for (std::size_t j = 0; j <= i; ++j) sum += p[j] = std::exp(p[j] - most);
    lse[i] = most + std::log(sum);
    double* const out = output(head.row(r.out, false, i));
    for (std::size_t j = 0; j <= i; ++j) {
      p[j] /= sum;
      dp[j] = product(head.row(in.dout, false, i), head.row(in.v, true, j));
      add(kept(p[j], as_bf16), head.row(in.v, true, j), out);
    }
    for (std::size_t c = 0; c < head.d; ++c) delta += (out[c] = kept(out[c], as_bf16)) * head.row(in.dout, false, i)[c];
    for (std::size_t j = 0; j <= i; ++j) {
      const double ds = kept(p[j] * (dp[j] - delta), as_bf16);
      add(kept(p[j], as_bf16), head.row(in.dout, false, i), output(head.row(r.dv, true, j)));
      add(scale * ds, head.row(in.q, false, i), output(head.row(r.dk, true, j)));
      add(scale * ds, head.row(in.k, true, j), output(head.row(r.dq, false, i)));
    }
  }
}

Results attend(const AttentionShape& shape, const Inputs& in, bool as_bf16) {
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
      attend(head, length, in, as_bf16, r, r.lse.data() + (sequence * heads + h) * length);
    }
  for (Values* values : {&r.dq, &r.dk, &r.dv})
    for (double& value : *values) value = kept(value, as_bf16);
  return r;
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

  Tensor<T> part(Matrix<T>& matrix, int index) const {
    const std::int64_t q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
    return matrix.view().slice_columns(index == 0 ? 0 : q + (index - 1) * kv, q + index * kv);
  }
  void forward(Cpu::Stream& stream) {
    Cpu::attention<T>(stream, shape, part(qkv, 0), part(qkv, 1), part(qkv, 2), out.view(), lse.view());
  }
  void backward(Cpu::Stream& stream) {
    Cpu::attention_backward<T>(stream, shape, part(qkv, 0), part(qkv, 1), part(qkv, 2), out.input(), lse.input(),
                               dout.input(), part(dqkv, 0), part(dqkv, 1), part(dqkv, 2));
  }
  Values values(Matrix<T>& matrix, int index) const {
    Values result;
    const Tensor<T> view = part(matrix, index);
    for (std::int64_t row = 0; row < view.rows(); ++row)
      for (std::int64_t column = 0; column < view.columns(); ++column)
        result.push_back(static_cast<double>(static_cast<float>(view.row(row)[column])));
    return result;
  }
  Inputs inputs() { return {values(qkv, 0), values(qkv, 1), values(qkv, 2), dout.values()}; }
  Results results() { return {out.values(), lse.values(), values(dqkv, 0), values(dqkv, 1), values(dqkv, 2)}; }

  AttentionShape shape;
  std::int64_t columns;
  Matrix<T> qkv, dqkv, out, dout;
  Matrix<float> lse;
};

/// L2 norm of the difference over that of the reference; the reference counts as 0.1 an element at least, because the
/// gradient of a softmax over few keys is the small difference of large numbers.
double relative(const Values& found, const Values& expected) {
  if (found.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    error += (found[i] - expected[i]) * (found[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(error / std::max(norm, 1e-2 * static_cast<double>(found.size())));
}

/// Lengths on both sides of every choice of block, each with several sizes of head and group.
const AttentionShape shapes[] = {
    {1, 1, 1, 1, 1},    {2, 1, 4, 1, 64},  {2, 3, 4, 1, 2},     {3, 7, 4, 4, 6},    {1, 15, 8, 1, 8},
    {2, 15, 8, 2, 128}, {1, 64, 2, 2, 80}, {2, 65, 4, 1, 16},   {1, 257, 8, 1, 16}, {3, 130, 4, 4, 8},
    {1, 300, 1, 1, 64}, {1, 511, 2, 1, 3}, {1, 257, 4, 4, 128}, {1, 769, 1, 1, 80}, {1, 2307, 1, 1, 2},
};

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
Errors errors(const Results& found, const Results& expected) {
  return {relative(found.out, expected.out), relative(found.lse, expected.lse), relative(found.dq, expected.dq),
          relative(found.dk, expected.dk), relative(found.dv, expected.dv)};
}

std::string name(const AttentionShape& s, int threads) {
  return message(s.sequences, " x ", s.sequence_length, ", heads ", s.heads, "/", s.kv_heads, " of ", s.head_dim, ", ",
                 threads, " threads");
}

template <class T>
Errors run(const AttentionShape& shape, int threads, const Results& expected) {
  Worker rank(threads);
  Buffers<T> buffers(shape);
  buffers.forward(rank.stream);
  buffers.backward(rank.stream);
  EXPECT_TRUE(buffers.out.gaps_untouched() && buffers.dqkv.gaps_untouched());
  EXPECT_EQ(rank.arena.used(), 0);
  EXPECT_EQ(rank.stream.counters.attention_flops,
            7 * shape.tokens() * shape.heads * shape.sequence_length * shape.head_dim);
  return errors(buffers.results(), expected);
}

TEST(Attention, IsTheReferenceInFloat) {
  for (const AttentionShape& shape : shapes) {
    const Results expected = attend(shape, Buffers<float>(shape).inputs(), false);
    for (const int threads : {1, 2}) {
      const Errors found = run<float>(shape, threads, expected);
      for (const double error : {found.out, found.lse, found.dq, found.dk, found.dv})
        EXPECT_LT(error, 1.5e-6) << name(shape, threads);
    }
  }
}

TEST(Attention, IsAsExactInBf16AsAnUnblockedComputation) {
  for (const AttentionShape& shape : shapes) {
    const Inputs inputs = Buffers<bf16>(shape).inputs();
    const Results expected = attend(shape, inputs, false);
    const Errors unblocked = errors(attend(shape, inputs, true), expected);
    for (const int threads : {1, 2}) {
      const Errors found = run<bf16>(shape, threads, expected);
      EXPECT_LT(found.lse, 1.5e-6) << name(shape, threads);
      EXPECT_LE(found.out, 1.5 * unblocked.out + 1e-6) << name(shape, threads);
      EXPECT_LE(found.dq, 1.5 * unblocked.dq + 1e-6) << name(shape, threads);
      EXPECT_LE(found.dk, 1.5 * unblocked.dk + 1e-6) << name(shape, threads);
      EXPECT_LE(found.dv, 1.5 * unblocked.dv + 1e-6) << name(shape, threads);
    }
  }
}

TEST(Attention, ReferenceAgreesWithFiniteDifferences) {
  const AttentionShape shape{.sequences = 2, .sequence_length = 5, .heads = 4, .kv_heads = 2, .head_dim = 3};
  const Inputs inputs = Buffers<float>(shape).inputs();
  const Results found = attend(shape, inputs, false);
  const auto gradient = [&](Values Inputs::*which) {
    const auto loss = [&](const Values& x) {
      Inputs moved = inputs;
      moved.*which = x;
      return dot(attend(shape, moved, false).out, inputs.dout);
    };
    return finite_differences(loss, inputs.*which);
  };
  EXPECT_LT(difference(found.dq, gradient(&Inputs::q)), 1e-8);
  EXPECT_LT(difference(found.dk, gradient(&Inputs::k)), 1e-8);
  EXPECT_LT(difference(found.dv, gradient(&Inputs::v)), 1e-8);
}

template <class T>
void expect_planned_scratch(const AttentionShape& shape, int threads) {
  Ledger ledger;
  Cpu::Arena nothing;
  Cpu::Stream planner(nothing, threads);
  for (const bool backward : {false, true}) {
    const std::int64_t planned = Cpu::attention_scratch(planner, shape, dtype_of<T>(), backward);
    Cpu::Arena arena(ledger, planned);
    Cpu::Stream stream(arena, threads);
    Buffers<T> buffers(shape);
    if (backward)
      buffers.backward(stream);
    else
      buffers.forward(stream);
    EXPECT_EQ(arena.peak(), planned) << name(shape, threads);
    EXPECT_EQ(arena.peak_scratch(), planned) << name(shape, threads);
  }
}

TEST(Attention, TakesTheScratchThatWasPlanned) {
  for (const AttentionShape& shape : shapes)
    for (const int threads : {1, 2, 3}) {
      expect_planned_scratch<float>(shape, threads);
      expect_planned_scratch<bf16>(shape, threads);
    }
}

TEST(Attention, RepeatsToTheBitWithTheSameThreads) {
  const AttentionShape shape{.sequences = 3, .sequence_length = 200, .heads = 4, .kv_heads = 1, .head_dim = 16};
  for (const int threads : {1, 2, 3}) {
    Worker rank(threads);
    Buffers<bf16> first(shape), second(shape);
    for (Buffers<bf16>* buffers : {&first, &second}) {
      buffers->forward(rank.stream);
      buffers->backward(rank.stream);
    }
    EXPECT_EQ(errors(first.results(), second.results()).dk, 0);
    const Results a = first.results(), b = second.results();
    EXPECT_TRUE(a.out == b.out && a.lse == b.lse && a.dq == b.dq && a.dk == b.dk && a.dv == b.dv);
  }
}

TEST(Attention, ANanInAKeyReachesTheQueriesThatSeeItAndNoOthers) {
  const AttentionShape shape{.sequences = 2, .sequence_length = 70, .heads = 2, .kv_heads = 2, .head_dim = 8};
  Worker rank(1);
  Buffers<bf16> buffers(shape);
  const std::int64_t token = 70 + 10;  // of the second sequence, first head
  buffers.part(buffers.qkv, 1).row(token)[3] = bf16(std::numeric_limits<float>::quiet_NaN());
  buffers.forward(rank.stream);
  for (std::int64_t t = 0; t < shape.tokens(); ++t)
    for (std::int64_t column = 0; column < 16; ++column)
      EXPECT_EQ(std::isnan(static_cast<float>(buffers.out.at(t, column))), t >= token && column < 8) << t << column;
}

TEST(Attention, LargeScoresNeitherOverflowNorVanish) {
  const AttentionShape shape{.sequences = 1, .sequence_length = 100, .heads = 1, .kv_heads = 1, .head_dim = 16};
  Worker rank(1);
  Buffers<float> buffers(shape);
  buffers.qkv.set([](std::int64_t i) { return 30 * random_value(9, static_cast<std::uint64_t>(i)); });
  const Results expected = attend(shape, buffers.inputs(), false);
  buffers.forward(rank.stream);
  EXPECT_LT(relative(buffers.results().out, expected.out), 1e-4);  // scores of 1000 have errors of 1e-4 in float
  EXPECT_LT(relative(buffers.results().lse, expected.lse), 1e-6);
}

TEST(Attention, RefusesTensorsThatDoNotFitItsShape) {
  const AttentionShape shape{.sequences = 1, .sequence_length = 4, .heads = 2, .kv_heads = 1, .head_dim = 4};
  Worker rank(1);
  Buffers<float> buffers(shape);
  buffers.shape.sequence_length = 5;
  EXPECT_THROW(buffers.forward(rank.stream), LogicError);
  EXPECT_THROW(buffers.backward(rank.stream), LogicError);
}

}  // namespace
}  // namespace fsdp::device

// SPDX-License-Identifier: Apache-2.0
#include "attention_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

/// Lengths on both sides of every threshold for block sizes, each with several head and group sizes.
const AttentionShape shapes[] = {
    {1, 1, 1, 1, 1},    {2, 1, 4, 1, 64},  {2, 3, 4, 1, 2},     {3, 7, 4, 4, 6},    {1, 15, 8, 1, 8},
    {2, 15, 8, 2, 128}, {1, 64, 2, 2, 80}, {2, 65, 4, 1, 16},   {1, 257, 8, 1, 16}, {3, 130, 4, 4, 8},
    {1, 300, 1, 1, 64}, {1, 511, 2, 1, 3}, {1, 257, 4, 4, 128}, {1, 769, 1, 1, 80}, {1, 2307, 1, 1, 2},
};

/// All head sizes and group sizes at a length that is not a multiple of any block, then all of `shapes`.
std::vector<AttentionShape> all_shapes() {
  std::vector<AttentionShape> list;
  for (const std::int64_t head_dim : {16, 64, 80, 128})
    for (const std::int64_t group : {1, 4, 8}) list.push_back({1, 97, 8, 8 / group, head_dim});
  list.insert(list.end(), std::begin(shapes), std::end(shapes));
  return list;
}

/// oneDNN sums the products of a row sequentially if it has no kernel for the processor, with a larger error.
#if defined(__x86_64__)
constexpr double float_bound = 1.5e-6;
#else
constexpr double float_bound = 2e-6;
#endif

TEST(Attention, MatchesTheReferenceInFloat) {
  for (const AttentionShape& shape : all_shapes()) expect_in_float(shape, {1, 2}, float_bound);
}

TEST(Attention, IsAsAccurateInBf16AsAnUnblockedComputation) {
  for (const AttentionShape& shape : all_shapes()) {
    const Inputs inputs = inputs_of<bf16>(shape);
    const Results expected = attend(shape, inputs, Rounding::none);
    const Errors rounded = errors(attend(shape, inputs, Rounding::operands), expected);
    const Errors stored = errors(attend(shape, inputs, Rounding::stored), expected);
    for (const int threads : {1, 2}) {
      const Errors found = run<bf16>(shape, threads, expected);
      EXPECT_LT(found.lse, 1.5e-6) << name(shape, threads);
      for (const auto error : {&Errors::out, &Errors::dq, &Errors::dk, &Errors::dv}) {
        EXPECT_LE(found.*error, 1.1 * rounded.*error + 1e-6) << name(shape, threads);  // the same number of roundings
        if (shape.tokens() < 64) continue;  // errors over few numbers are random
        EXPECT_LE(found.*error, stored.*error) << name(shape, threads);
      }
    }
  }
}

TEST(Attention, ReferenceAgreesWithFiniteDifferences) {
  const AttentionShape shape{.sequences = 2, .sequence_length = 5, .heads = 4, .kv_heads = 2, .head_dim = 3};
  const Inputs inputs = inputs_of<float>(shape);
  const Results found = attend(shape, inputs, Rounding::none);
  const auto gradient = [&](Values Inputs::*which) {
    const auto loss = [&](const Values& x) {
      Inputs moved = inputs;
      moved.*which = x;
      return dot(attend(shape, moved, Rounding::none).out, inputs.dout);
    };
    return finite_differences(loss, inputs.*which);
  };
  EXPECT_LT(difference(found.dq, gradient(&Inputs::q)), 1e-8);
  EXPECT_LT(difference(found.dk, gradient(&Inputs::k)), 1e-8);
  EXPECT_LT(difference(found.dv, gradient(&Inputs::v)), 1e-8);
}

TEST(Attention, UsesThePlannedScratch) {
  for (const AttentionShape& shape : shapes)
    for (const int threads : {1, 2, 3}) {
      expect_planned_scratch<float>(shape, shape, threads);
      expect_planned_scratch<bf16>(shape, shape, threads);
    }
}

TEST(Attention, IsBitIdenticalWithTheSameThreads) {
  const AttentionShape shape{.sequences = 3, .sequence_length = 200, .heads = 4, .kv_heads = 1, .head_dim = 16};
  for (const int threads : {1, 2, 3}) {
    Worker rank(threads);
    expect_repeated<bf16>(rank, shape);
  }
}

TEST(Attention, ANanInAKeyReachesOnlyTheQueriesThatAttendToIt) {
  const AttentionShape shape{.sequences = 2, .sequence_length = 70, .heads = 2, .kv_heads = 2, .head_dim = 8};
  Worker rank(1);
  Buffers<bf16> buffers(rank, shape);
  const std::int64_t token = 70 + 10;  // in the second sequence
  buffers.part(buffers.qkv, 1).row(token)[3] = bf16(std::numeric_limits<float>::quiet_NaN());
  buffers.forward(rank);
  for (const Values values = buffers.out.values(); const double& value : values) {
    const std::int64_t place = &value - values.data();
    EXPECT_EQ(std::isnan(value), place / 16 >= token && place % 16 < 8) << place / 16 << ", " << place % 16;
  }
}

TEST(Attention, LargeScoresNeitherOverflowNorVanish) {
  const AttentionShape shape{.sequences = 1, .sequence_length = 100, .heads = 1, .kv_heads = 1, .head_dim = 16};
  Worker rank(1);
  Buffers<float> buffers(rank, shape);
  buffers.qkv.set([](std::int64_t i) { return 30 * number_at(9, i); });
  const Results expected = attend(shape, buffers.inputs(), Rounding::none);
  buffers.forward(rank);
  EXPECT_LT(relative(buffers.results().out, expected.out), 1e-4);  // scores of 1000 have errors of 1e-4 in float
  EXPECT_LT(relative(buffers.results().lse, expected.lse), 1e-6);
}

TEST(Attention, RefusesTensorsThatDoNotFitItsShape) {
  const AttentionShape shape{.sequences = 1, .sequence_length = 4, .heads = 2, .kv_heads = 1, .head_dim = 4};
  Worker rank(1);
  Buffers<float> buffers(rank, shape);
  buffers.shape.sequence_length = 5;
  EXPECT_THROW(buffers.forward(rank), LogicError);
  EXPECT_THROW(buffers.backward(rank), LogicError);
}

}  // namespace
}  // namespace fsdp::device

// SPDX-License-Identifier: Apache-2.0
/// Packed documents and sliding windows: attention and rotary positions stay within each document or window.
#include <tessera/fsdp/device/meta.hpp>

#include <support/temporary_folder.hpp>

#include "attention_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;
using Lengths = std::vector<std::int64_t>;

/// A shape with documents of one token, empty ones, ones that end at a tile boundary, and ones over several tiles.
AttentionShape shape_of(std::int64_t head_dim, std::int64_t group, const Lengths& documents) {
  return {.sequences = 2,
          .sequence_length = documents.back() / 2,
          .heads = 8,
          .kv_heads = 8 / group,
          .head_dim = head_dim,
          .documents = documents};
}
const Lengths few_tokens = {0, 1, 2, 64, 64, 67, 83, 119, 166};
/// More than one tile of keys in forward and backward, and queries whose first key is not in the first tile.
const Lengths many_tokens = {0, 3, 500, 515, 530, 1100, 1111, 2041, 2042, 2200};

template <class Check>
void for_each_packed_shape(const Check& check) {
  for (const std::int64_t head_dim : {16, 64, 80, 128})
    for (const std::int64_t group : {1, 4, 8}) check(shape_of(head_dim, group, few_tokens));
  AttentionShape shape = shape_of(16, 8, many_tokens);
  shape.heads = 2;
  shape.kv_heads = 1;
  check(shape);
}

/// Windows of one token, within a tile, over several tiles, and up to the whole length, for packed and whole sequences.
template <class Check>
void for_each_windowed_shape(const Check& check) {
  for (const bool packed : {true, false}) {
    for (const std::int64_t window : test::sanitized ? Lengths{7} : Lengths{1, 7, 40, 82, 83})
      for (const std::int64_t head_dim : {16, 64}) {
        AttentionShape shape = shape_of(head_dim, 4, few_tokens);
        shape.window = window;
        if (!packed) shape.documents = {};
        check(shape);
      }
    for (const std::int64_t window : test::sanitized ? Lengths{300} : Lengths{33, 300, 700}) {
      AttentionShape shape = shape_of(16, 2, many_tokens);
      shape.heads = 2;
      shape.kv_heads = 1;
      shape.window = window;
      if (!packed) shape.documents = {};
      check(shape);
    }
  }
}

template <class Check>
void for_each_shape(const Check& check) {
  for_each_packed_shape(check);
  for_each_windowed_shape(check);
}

TEST(PackedAttention, MatchesTheReferenceInFloat) {
  for_each_shape([](const AttentionShape& shape) { expect_in_float(shape, team_sizes(), 1.5e-6); });
}

TEST(PackedAttention, IsAsAccurateInBf16AsAnUnblockedComputation) {
  for_each_shape([](const AttentionShape& shape) {
    const Inputs inputs = inputs_of<bf16>(shape);
    const Results expected = attend(shape, inputs, Rounding::none);
    const Errors unblocked = errors(attend(shape, inputs, Rounding::stored), expected);
    for (const int threads : team_sizes()) {
      const Errors found = run<bf16>(shape, threads, expected);
      EXPECT_LT(found.lse, 1.5e-6) << name(shape, threads);
      for (const auto error : {&Errors::out, &Errors::dq, &Errors::dk, &Errors::dv})
        EXPECT_LE(found.*error, unblocked.*error) << name(shape, threads);
    }
  });
}

TEST(PackedAttention, IsBitIdenticalToSeparateSequencesAtTileBoundaries) {
  const Lengths documents = {0, 1024, 2048};
  AttentionShape packed{
      .sequences = 1, .sequence_length = 2048, .heads = 2, .kv_heads = 1, .head_dim = 16, .documents = documents};
  AttentionShape separate = packed;
  separate.sequences = 2;
  separate.sequence_length = 1024;
  separate.documents = {};
  Worker rank(1);
  Buffers<bf16> one(rank, packed), two(rank, separate);
  one.run(rank);
  two.run(rank);
  Results a = one.results(), b = two.results();
  a.lse = b.lse = {};  // the row layouts for one and for two sequences differ
  EXPECT_TRUE(a == b);
}

/// Runs forward and backward with NaN keys and values in the first 512 tokens; even a product with a masked probability
/// would be NaN. Column 3 of out and dq must be NaN for exactly the tokens before `until`.
Buffers<bf16> expect_skipped_tiles(const AttentionShape& shape, std::int64_t until) {
  Worker rank(1);
  Buffers<bf16> buffers(rank, shape);
  for (const int matrix : {1, 2}) {
    const Tensor<bf16> part = buffers.part(buffers.qkv, matrix);
    for (std::int64_t t = 0; t < 512; ++t) std::fill_n(part.row(t), 8, bf16(std::numeric_limits<float>::quiet_NaN()));
  }
  buffers.run(rank);
  for (std::int64_t t = 0; t < 1100; ++t) {
    EXPECT_EQ(std::isnan(static_cast<float>(buffers.out.at(t, 3))), t < until) << t;
    EXPECT_EQ(std::isnan(static_cast<float>(buffers.part(buffers.dqkv, 0).row(t)[3])), t < until) << t;
  }
  return buffers;
}

TEST(PackedAttention, SkipsTilesOfKeysThatNoQueryAttendsTo) {
  const Lengths documents = {0, 512, 1100};
  Buffers<bf16> buffers = expect_skipped_tiles(
      {.sequences = 1, .sequence_length = 1100, .heads = 1, .kv_heads = 1, .head_dim = 8, .documents = documents}, 512);
  for (const int matrix : {1, 2})
    for (std::int64_t t = 0; t < 1100; ++t)
      EXPECT_EQ(std::isnan(static_cast<float>(buffers.part(buffers.dqkv, matrix).row(t)[3])), t < 512) << t;
}

/// Blocks of queries up to token 640 attend to the first tile of keys.
TEST(PackedAttention, SkipsTilesOfKeysOutsideTheWindow) {
  expect_skipped_tiles(
      {.sequences = 1, .sequence_length = 1100, .heads = 1, .kv_heads = 1, .head_dim = 8, .window = 100}, 640);
}

TEST(PackedAttention, UsesTheScratchOfWholeSequences) {
  for_each_shape([](const AttentionShape& shape) {
    AttentionShape planned = shape;
    planned.documents = {};
    planned.window = 0;
    for (const int threads : team_sizes()) {
      expect_planned_scratch<float>(shape, planned, threads);
      expect_planned_scratch<bf16>(shape, planned, threads);
    }
  });
}

TEST(PackedAttention, IsBitIdenticalWithTheSameThreads) {
  for (const int threads : team_sizes()) {
    Worker rank(threads);
    expect_repeated<bf16>(rank, shape_of(16, 8, many_tokens));
  }
}

TEST(PackedAttention, RotaryPositionsRestartInEveryDocument) {
  for (const int threads : team_sizes()) {
    Rank rank(threads);
    Matrix<float> table(83, 16);
    enqueue(rank.stream, RotaryTable{.theta = 100, .table = table});
    auto packed = Matrix<bf16>::random(1, 166, 48), alone = packed;
    enqueue(rank.stream, Rope<bf16>{.x = packed, .table = table, .documents = few_tokens});
    for (auto begin = few_tokens.begin(); begin + 1 != few_tokens.end(); ++begin)
      enqueue(rank.stream, Rope<bf16>{.x = alone.view().slice(begin[0], begin[1]), .table = table});
    EXPECT_EQ(packed.values(), alone.values());
  }
}

TEST(PackedAttention, RefusesDocumentsThatDoNotCoverTheBatch) {
  const struct {
    Lengths documents;
    const char* says;
  } cases[] = {{{1, 8}, "must begin with 0"},        {{0, 3, 2, 8}, "must not decrease"},
               {{0, 3}, "must cover all of them"},   {{0, 4, 9}, "over the end of a sequence"},
               {{0}, "must cover all of them"},      {{0, 4, 8, 9}, "must cover all of them"},
               {{0, 5, 8}, "give the batch as one"}, {{-1, 4, 8}, "must begin with 0"}};
  for (const auto& bad : cases) {
    const AttentionShape shape{
        .sequences = 2, .sequence_length = 4, .heads = 1, .kv_heads = 1, .head_dim = 4, .documents = bad.documents};
    Worker rank(1);
    Buffers<float> buffers(rank, shape);
    Meta::Arena arena = Meta::Arena::unbounded();
    Meta::Stream meta(arena, 1);
    const Tensor<float> x(nullptr, {8, 4}), table(nullptr, {4, 4}), lse(nullptr, {2, 4});
    EXPECT_INPUT_ERROR(buffers.forward(rank), bad.says);
    EXPECT_INPUT_ERROR(buffers.backward(rank), bad.says);
    const Attention<float> forward{.shape = shape, .q = x, .k = x, .v = x, .out = x, .lse = lse};
    EXPECT_INPUT_ERROR(enqueue(meta, forward), bad.says);
    const AttentionBackward<float> backward{
        .shape = shape, .q = x, .k = x, .v = x, .out = x, .lse = lse, .dout = x, .dq = x, .dk = x, .dv = x};
    EXPECT_INPUT_ERROR(enqueue(meta, backward), bad.says);
    const Rope<float> rope{.x = x, .table = table, .documents = bad.documents};
    EXPECT_INPUT_ERROR(enqueue(meta, rope), bad.says);
    EXPECT_TRUE(std::isnan(buffers.out.at(0, 0)) && std::isnan(buffers.dqkv.at(0, 0)));
  }
}

}  // namespace
}  // namespace fsdp::device

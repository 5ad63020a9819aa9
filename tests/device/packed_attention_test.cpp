// SPDX-License-Identifier: Apache-2.0
/// Documents packed into sequences, and sliding windows: attention and rotary positions stay within each.
#include <tessera/fsdp/device/meta.hpp>

#include "attention_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;
using Lengths = std::vector<std::int64_t>;

/// A shape of few tokens and documents of every kind: of one token, empty, up to a tile's border, over several tiles.
AttentionShape shape_of(std::int64_t head_dim, std::int64_t group, const Lengths& documents) {
  return {.sequences = 2,
          .sequence_length = documents.back() / 2,
          .heads = 8,
          .kv_heads = 8 / group,
          .head_dim = head_dim,
          .documents = documents};
}
const Lengths few_tokens = {0, 1, 2, 64, 64, 67, 83, 119, 166};
/// More than one tile of keys in both passes, and queries whose first tile is not the first.
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

/// Windows of one token, of less than a tile, over several tiles, up to the whole; of packed and of whole sequences.
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

TEST(PackedAttention, IsTheReferenceInFloat) {
  for_each_shape([](const AttentionShape& shape) {
    const Results expected = attend(shape, Buffers<float>(shape).inputs(), Rounding::none);
    for (const int threads : team_sizes()) {
      const Errors found = run<float>(shape, threads, expected);
      for (const double error : {found.out, found.lse, found.dq, found.dk, found.dv})
        EXPECT_LT(error, 1.5e-6) << name(shape, threads);
    }
  });
}

TEST(PackedAttention, IsAsExactInBf16AsAnUnblockedComputation) {
  for_each_shape([](const AttentionShape& shape) {
    const Inputs inputs = Buffers<bf16>(shape).inputs();
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

TEST(PackedAttention, IsThatOfSeparateSequencesToTheBitWhereDocumentsBeginAtBordersOfTiles) {
  const Lengths documents = {0, 1024, 2048};
  AttentionShape packed{
      .sequences = 1, .sequence_length = 2048, .heads = 2, .kv_heads = 1, .head_dim = 16, .documents = documents};
  AttentionShape separate = packed;
  separate.sequences = 2;
  separate.sequence_length = 1024;
  separate.documents = {};
  Worker rank(1);
  Buffers<bf16> one(packed), two(separate);
  for (Buffers<bf16>* buffers : {&one, &two}) {
    buffers->forward(rank.stream);
    buffers->backward(rank.stream);
  }
  const Results a = one.results(), b = two.results();
  EXPECT_TRUE(a.out == b.out && a.dq == b.dq && a.dk == b.dk && a.dv == b.dv);
}

TEST(PackedAttention, SkipsTilesOfKeysThatNoQuerySees) {
  const Lengths documents = {0, 512, 1100};
  const AttentionShape shape{
      .sequences = 1, .sequence_length = 1100, .heads = 1, .kv_heads = 1, .head_dim = 8, .documents = documents};
  Worker rank(1);
  Buffers<bf16> buffers(shape);
  for (std::int64_t t = 0; t < 512; ++t)  // a product with a masked probability would be NaN too
    for (const int matrix : {1, 2})
      std::fill_n(buffers.part(buffers.qkv, matrix).row(t), 8, bf16(std::numeric_limits<float>::quiet_NaN()));
  buffers.forward(rank.stream);
  buffers.backward(rank.stream);
  for (std::int64_t t = 0; t < 1100; ++t) {
    EXPECT_EQ(std::isnan(static_cast<float>(buffers.out.at(t, 3))), t < 512) << t;
    for (const int matrix : {0, 1, 2})
      EXPECT_EQ(std::isnan(static_cast<float>(buffers.part(buffers.dqkv, matrix).row(t)[3])), t < 512) << t;
  }
}

TEST(PackedAttention, SkipsTilesOfKeysBehindTheWindow) {
  const AttentionShape shape{
      .sequences = 1, .sequence_length = 1100, .heads = 1, .kv_heads = 1, .head_dim = 8, .window = 100};
  Worker rank(1);
  Buffers<bf16> buffers(shape);
  for (std::int64_t t = 0; t < 512; ++t)  // the first tile of keys, which blocks of queries see up to token 640
    for (const int matrix : {1, 2})
      std::fill_n(buffers.part(buffers.qkv, matrix).row(t), 8, bf16(std::numeric_limits<float>::quiet_NaN()));
  buffers.forward(rank.stream);
  buffers.backward(rank.stream);
  for (std::int64_t t = 0; t < 1100; ++t) {
    EXPECT_EQ(std::isnan(static_cast<float>(buffers.out.at(t, 3))), t < 640) << t;
    EXPECT_EQ(std::isnan(static_cast<float>(buffers.part(buffers.dqkv, 0).row(t)[3])), t < 640) << t;
  }
}

template <class T>
void expect_planned_scratch(const AttentionShape& shape, int threads) {
  AttentionShape planned = shape;
  planned.documents = {};
  planned.window = 0;
  for (const bool backward : {false, true}) {
    Ledger ledger;
    const Cpu::Planner planner(threads);
    Cpu::Arena arena(ledger, backward ? scratch(planner, AttentionBackward<T>{.shape = planned})
                                      : scratch(planner, Attention<T>{.shape = planned}));
    Cpu::Stream stream(arena, threads);
    Buffers<T> buffers(shape);
    backward ? buffers.backward(stream) : buffers.forward(stream);
    EXPECT_EQ(arena.peak_scratch(), arena.capacity()) << name(shape, threads);
  }
}

TEST(PackedAttention, TakesTheScratchOfWholeSequences) {
  for_each_shape([](const AttentionShape& shape) {
    for (const int threads : team_sizes()) {
      expect_planned_scratch<float>(shape, threads);
      expect_planned_scratch<bf16>(shape, threads);
    }
  });
}

TEST(PackedAttention, RepeatsToTheBitWithTheSameThreads) {
  AttentionShape shape = shape_of(16, 8, many_tokens);
  for (const int threads : team_sizes()) {
    Worker rank(threads);
    Buffers<bf16> first(shape), second(shape);
    for (Buffers<bf16>* buffers : {&first, &second}) {
      buffers->forward(rank.stream);
      buffers->backward(rank.stream);
    }
    const Results a = first.results(), b = second.results();
    EXPECT_TRUE(a.out == b.out && a.lse == b.lse && a.dq == b.dq && a.dk == b.dk && a.dv == b.dv) << threads;
  }
}

TEST(PackedAttention, RotaryPositionsBeginAnewInEveryDocument) {
  for (const int threads : team_sizes()) {
    Rank rank(threads);
    Matrix<float> table(83, 16);
    enqueue(rank.stream, RotaryTable{.theta = 100, .table = table.view()});
    auto packed = Matrix<bf16>::random(1, 166, 48), alone = packed;
    enqueue(
        rank.stream,
        Rope<bf16>{.x = packed.view(), .table = table.input(), .rotation = Rotation::forward, .documents = few_tokens});
    for (std::size_t i = 1; i < few_tokens.size(); ++i)
      enqueue(rank.stream, Rope<bf16>{.x = alone.view().slice(few_tokens[i - 1], few_tokens[i]),
                                      .table = table.input(),
                                      .rotation = Rotation::forward});
    EXPECT_EQ(packed.values(), alone.values());
  }
}

/// What an InputError says; empty where none was thrown.
template <class F>
std::string complaint(const F& f) {
  try {
    f();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(PackedAttention, RefusesListsThatDoNotCoverTheBatchBeforeItComputes) {
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
    Buffers<float> buffers(shape);
    Meta::Arena arena = Meta::Arena::unbounded();
    Meta::Stream meta(arena, 1);
    const Tensor<float> x(nullptr, {8, 4}), table(nullptr, {4, 4}), lse(nullptr, {2, 4});
    for (const std::string& text :
         {complaint([&] { buffers.forward(rank.stream); }), complaint([&] { buffers.backward(rank.stream); }),
          complaint(
              [&] { enqueue(meta, Attention<float>{.shape = shape, .q = x, .k = x, .v = x, .out = x, .lse = lse}); }),
          complaint([&] {
            enqueue(meta, AttentionBackward<float>{.shape = shape,
                                                   .q = x,
                                                   .k = x,
                                                   .v = x,
                                                   .out = x,
                                                   .lse = lse,
                                                   .dout = x,
                                                   .dq = x,
                                                   .dk = x,
                                                   .dv = x});
          }),
          complaint([&] {
            enqueue(meta,
                    Rope<float>{.x = x, .table = table, .rotation = Rotation::forward, .documents = bad.documents});
          })})
      EXPECT_NE(text.find(bad.says), std::string::npos) << text;
    EXPECT_TRUE(std::isnan(buffers.out.at(0, 0)) && std::isnan(buffers.dqkv.at(0, 0)));
  }
}

}  // namespace
}  // namespace fsdp::device

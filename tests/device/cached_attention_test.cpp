// SPDX-License-Identifier: Apache-2.0
/// Attention of one more token per sequence to the cached keys and values, compared with the token's row in attention
/// over whole sequences.
#include <range/v3/view/enumerate.hpp>

#include <tessera/fsdp/device/meta.hpp>

#include "attention_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;
using Positions = std::vector<std::int32_t>;

/// A KV cache for the sequences of a shape, with `room` for more tokens.
template <class T>
struct Kept {
  Kept(const AttentionShape& s, std::int64_t room, std::int64_t begun, int threads)
      : shape(s),
        rank(threads),
        whole(rank, s),
        keys(s.sequences * s.kv_heads * (s.sequence_length + room), s.head_dim),  // NaN where nothing is cached
        values(s.sequences * s.kv_heads * (s.sequence_length + room), s.head_dim) {
    std::vector<std::int64_t> firsts;
    for (std::int64_t i = 0; i < s.sequences; ++i)
      for (std::int64_t t = 0; t < begun; ++t) firsts.push_back(i * s.sequence_length + t);
    keep(firsts, {});
    for (std::int64_t t = begun; t < s.sequence_length; ++t) {  // the remaining tokens one at a time
      std::vector<std::int64_t> next;
      for (std::int64_t i = 0; i < s.sequences; ++i) next.push_back(i * s.sequence_length + t);
      keep(next, Positions(static_cast<std::size_t>(s.sequences), static_cast<std::int32_t>(t)));
    }
  }

  /// The rows of these tokens, stacked.
  Matrix<T> rows(int index, const std::vector<std::int64_t>& tokens) {
    const Tensor<T> from = whole.part(whole.qkv, index);
    Matrix<T> rows(std::ssize(tokens), from.columns(), 3);
    for (std::int64_t i = 0; i < std::ssize(tokens); ++i)
      std::copy_n(from.row(tokens[static_cast<std::size_t>(i)]), from.columns(), rows.view().row(i));
    return rows;
  }
  void keep(const std::vector<std::int64_t>& tokens, const Positions& positions) {
    for (const int index : {1, 2}) {
      const Matrix<T> x = rows(index, tokens);
      Matrix<T>& kept = index == 1 ? keys : values;
      enqueue(rank.stream, KeepHeads<T>{.sequences = shape.sequences,
                                        .positions = {positions.data(), {std::ssize(positions)}},
                                        .x = x,
                                        .kept = kept});
    }
  }
  /// Returns attention for the tokens at these positions.
  Values attend(const Positions& positions) {
    std::vector<std::int64_t> tokens;
    for (const auto& [row, position] : ranges::views::enumerate(positions))
      tokens.push_back(static_cast<std::int64_t>(row) * shape.sequence_length + position);
    const Matrix<T> q = rows(0, tokens);
    Matrix<T> out(std::ssize(tokens), shape.heads * shape.head_dim, 5);
    enqueue(rank.stream, CachedAttention<T>{.kv_heads = shape.kv_heads,
                                            .window = shape.window,
                                            .longest = *std::max_element(positions.begin(), positions.end()) + 1,
                                            .positions = {positions.data(), {std::ssize(positions)}},
                                            .q = q,
                                            .keys = keys,
                                            .values = values,
                                            .out = out});
    EXPECT_TRUE(out.gaps_untouched());
    EXPECT_EQ(rank.arena.used(), 0);
    return out.values();
  }

  AttentionShape shape;
  Worker rank;
  Buffers<T> whole;
  Matrix<T> keys, values;
};

template <class T>
void expect_reference(const AttentionShape& shape, double bound) {
  constexpr bool is_float = std::is_same_v<T, float>;
  const Results expected = attend(shape, inputs_of<T>(shape), is_float ? Rounding::none : Rounding::operands);
  for (const int threads : team_sizes())
    for (const std::int64_t begun : {std::int64_t{1}, shape.sequence_length}) {
      if (test::sanitized && begun == 1 && shape.sequence_length > 40) continue;
      Kept<T> kept(shape, begun == 1 ? 0 : 7, begun, threads);
      const auto last = static_cast<std::int32_t>(shape.sequence_length - 1);
      for (const std::int32_t position : {0, last / 3, last / 2, last}) {
        Positions positions;
        Values rows;
        for (std::int64_t i = 0; i < shape.sequences; ++i) {  // sequences continue at different positions
          positions.push_back(i % 2 == 0 ? position : last - position);
          const std::int64_t width = shape.heads * shape.head_dim;
          const auto row = expected.out.begin() + (i * shape.sequence_length + positions.back()) * width;
          rows.insert(rows.end(), row, row + width);
        }
        EXPECT_LT(relative(kept.attend(positions), rows), bound) << name(shape, threads) << ", at " << position;
      }
    }
}

std::vector<AttentionShape> cached_shapes() {
  return {{.sequences = 1, .sequence_length = 1, .heads = 1, .kv_heads = 1, .head_dim = 4},
          {.sequences = 3, .sequence_length = 37, .heads = 6, .kv_heads = 2, .head_dim = 5},
          {.sequences = 2, .sequence_length = 40, .heads = 4, .kv_heads = 4, .head_dim = 80, .window = 1},
          {.sequences = 2, .sequence_length = 150, .heads = 9, .kv_heads = 3, .head_dim = 64, .window = 20},
          {.sequences = 2, .sequence_length = 300, .heads = 4, .kv_heads = 1, .head_dim = 128, .window = 140},
          {.sequences = 3, .sequence_length = 400, .heads = 2, .kv_heads = 1, .head_dim = 16}};
}

TEST(CachedAttention, MatchesTheRowOfTheReferenceInFloat) {
  for (const AttentionShape& shape : cached_shapes()) expect_reference<float>(shape, 1.5e-6);
}

TEST(CachedAttention, MatchesTheRowOfTheReferenceInBf16) {
  for (const AttentionShape& shape : cached_shapes()) expect_reference<bf16>(shape, 5e-3);
}

TEST(CachedAttention, RefusesPositionsOutsideTheCache) {
  const AttentionShape shape{.sequences = 2, .sequence_length = 5, .heads = 2, .kv_heads = 1, .head_dim = 4};
  Kept<float> kept(shape, 0, 5, 1);
  EXPECT_THROW(kept.keep({0, 1}, {5, 0}), LogicError);
  EXPECT_THROW(kept.keep({0, 1}, {-1, 0}), LogicError);
  EXPECT_THROW(kept.keep({0, 1, 2, 3}, {0, 0}), LogicError);  // two tokens for sequences that are already cached
  EXPECT_THROW(kept.attend({0, -1}), LogicError);
}

TEST(CachedAttention, CostsOnMetaAreThoseOfTheCpu) {
  const auto counted = [](auto& arena, auto& stream, auto make) {
    const Tensor<float> q = make({2, 24}), kept = make({2 * 2 * 300, 4});
    const Positions positions = {299, 7};
    enqueue(stream,
            KeepHeads<float>{.sequences = 2, .positions = {positions.data(), {2}}, .x = make({2, 8}), .kept = kept});
    enqueue(stream, CachedAttention<float>{.kv_heads = 2,
                                           .longest = 300,
                                           .positions = {positions.data(), {2}},
                                           .q = q,
                                           .keys = kept,
                                           .values = kept,
                                           .out = q});
    return std::tuple(arena.peak(), stream.counters.attention_flops, stream.counters.elementwise_bytes);
  };
  Worker rank(2);
  std::vector<Matrix<float>> memory;
  memory.reserve(3);
  const auto found = counted(rank.arena, rank.stream, [&](const Shape& shape) {
    return memory.emplace_back(Matrix<float>::random(1, shape[0], shape[1])).view();
  });
  Meta::Arena arena = Meta::Arena::unbounded();
  Meta::Stream stream(arena, 2);
  EXPECT_EQ(counted(arena, stream, [](const Shape& shape) { return Tensor<float>(nullptr, shape); }), found);
  EXPECT_EQ(std::get<1>(found), 4 * 2 * 24 * 300);
}

TEST(RotaryTable, OfListedPositionsHasTheRowsOfThesePositions) {
  Rank rank(1);
  Matrix<float> all(50, 6), some(4, 6);
  const std::vector<std::int32_t> positions = {7, 0, 49, 7};
  enqueue(rank.stream, RotaryTable{.theta = 100, .table = all});
  enqueue(rank.stream, RotaryTable{.theta = 100, .table = some, .positions = {positions.data(), {4}}});
  Values expected;
  for (const std::int32_t position : positions) {
    const Values row = values_of(all.view().slice(position, position + 1));
    expected.insert(expected.end(), row.begin(), row.end());
  }
  EXPECT_EQ(some.values(), expected);
  EXPECT_THROW(enqueue(rank.stream, RotaryTable{.table = some, .positions = {positions.data(), {3}}}), LogicError);
}

}  // namespace
}  // namespace fsdp::device

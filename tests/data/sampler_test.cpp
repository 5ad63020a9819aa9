// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/sampler.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/problem.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::data {
namespace {

using List = std::vector<std::int64_t>;

List sorted(List list) {
  std::ranges::sort(list);
  return list;
}

List all_below(std::int64_t size) {
  List list(static_cast<std::size_t>(size));
  std::iota(list.begin(), list.end(), 0);
  return list;
}

List values_of(const Permutation& order, std::int64_t size) {
  List values = all_below(size);
  for (std::int64_t& value : values) value = order(value);
  return values;
}

TEST(Permutation, HasEveryValueOnceForEverySize) {
  for (const std::int64_t size : {1, 2, 3, 4, 5, 6, 15, 16, 17, 100, 257, 4096, 4097})
    EXPECT_EQ(sorted(values_of(Permutation(7, 3, size), size)), all_below(size)) << size;
}

TEST(Permutation, MatchesRecordedValues) {
  EXPECT_EQ(values_of(Permutation(1, 0, 10), 10), (List{4, 2, 8, 7, 9, 0, 3, 5, 1, 6}));
}

TEST(Permutation, SeedsAndEpochsDiffer) {
  std::set<List> seen;
  for (const std::uint64_t seed : {0, 1, 2})
    for (const std::uint64_t epoch : {0, 1, 2}) seen.insert(values_of(Permutation(seed, epoch, 50), 50));
  EXPECT_EQ(seen.size(), 9u);
}

TEST(Permutation, SpreadsFirstValuesEvenly) {
  std::vector<int> counts(6, 0);
  for (std::uint64_t epoch = 0; epoch < 6000; ++epoch) ++counts[static_cast<std::size_t>(Permutation(3, epoch, 6)(0))];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);  // 5 standard deviations
}

TEST(Sampler, NoWindowRepeatsWithinAnEpochEvenIfABatchSpansTwo) {
  Sampler sampler(5, 23, 4);
  List drawn;
  while (drawn.size() < 3 * 23) {
    const List batch = sampler.batch();
    drawn.insert(drawn.end(), batch.begin(), batch.end());
    sampler.advance();
  }
  for (const std::ptrdiff_t epoch : {0, 1, 2})
    EXPECT_EQ(sorted(List(drawn.begin() + epoch * 23, drawn.begin() + (epoch + 1) * 23)), all_below(23));
  EXPECT_EQ(sampler.position(), (Position{.epoch = 3, .index = 3}));
}

TEST(Sampler, ABatchMayBeLargerThanTheData) {
  Sampler sampler(5, 3, 8);
  const List batch = sampler.batch();
  EXPECT_EQ(sorted(List(batch.begin(), batch.begin() + 3)), all_below(3));
  EXPECT_EQ(sorted(List(batch.begin() + 3, batch.begin() + 6)), all_below(3));
  sampler.advance();
  EXPECT_EQ(sampler.position(), (Position{.epoch = 2, .index = 2}));
}

/// Returns the pieces in the order in which ranks take them, round by round, and checks the number of pieces of each
/// rank.
List pieces_taken(int pieces, int ranks) {
  List taken;
  for (int m = 0; m < sharding::micro_batches_of(pieces, ranks); ++m)
    for (int rank = 0; rank < ranks; ++rank) {
      const int piece = sharding::piece_of(m, rank, ranks);
      EXPECT_EQ(piece < pieces, m < sharding::pieces_of_rank(pieces, rank, ranks)) << piece << " on " << ranks;
      if (piece < pieces) taken.push_back(piece);
    }
  return taken;
}

TEST(Pieces, EachPieceGoesToOneRankInOrderForAnyNumberOfRanks) {
  for (const int pieces : {1, 2, 7, 8, 12})
    for (int ranks = 1; ranks <= 15; ++ranks) EXPECT_EQ(pieces_taken(pieces, ranks), all_below(pieces)) << ranks;
}

TEST(Sampler, PiecesConcatenateToTheBatch) {
  for (const std::int64_t pieces : {1, 2, 3, 4, 6, 12}) {
    Sampler sampler(9, 17, 12);
    for (std::int64_t step = 0; step < 5; ++step) {
      List together;
      for (std::int64_t piece = 0; piece < pieces; ++piece) {
        const Share share{.piece = piece, .pieces = pieces};
        EXPECT_EQ(sampler.place(share), step * 12 + std::ssize(together)) << "dropout follows from it";
        const List part = sampler.slice(share);
        together.insert(together.end(), part.begin(), part.end());
      }
      EXPECT_EQ(together, sampler.batch());
      sampler.advance();
    }
  }
}

TEST(Sampler, AnInvalidPieceIsAnError) {
  const Sampler sampler(9, 17, 12);
  EXPECT_THROW(sampler.slice({.piece = 4, .pieces = 4}), Error);
  EXPECT_THROW(sampler.slice({.piece = -1, .pieces = 4}), Error);
  EXPECT_THROW(sampler.slice({.piece = 0, .pieces = 5}), Error);
}

TEST(Sampler, ContinuesFromARestoredPosition) {
  Sampler first(9, 17, 4);
  for (int step = 0; step < 6; ++step) first.advance();
  Sampler second(9, 17, 4);
  second.restore(first.position());
  for (int step = 0; step < 20; ++step) {
    EXPECT_EQ(first.batch(), second.batch());
    first.advance();
    second.advance();
  }
}

TEST(Sampler, APositionOfOtherDataIsAnInputError) {
  Sampler sampler(9, 17, 4);
  EXPECT_INPUT_ERROR(sampler.restore({.epoch = 0, .index = 17}), "17 training windows");
  EXPECT_INPUT_ERROR(sampler.restore({.epoch = -1, .index = 0}), "epoch -1");
}

TEST(CheckBatch, SuggestsTheNearestValidSizes) {
  EXPECT_NO_THROW(check_batch(12, 3, 4));
  EXPECT_INPUT_ERROR(check_batch(7, 2, 2), "shared by 2 ranks x 2 micro-batches; the nearest sizes that can: 4 and 8");
  EXPECT_INPUT_ERROR(check_batch(3, 2, 2), "nearest sizes that can: 4");
  EXPECT_INPUT_ERROR(check_batch(0, 1, 1), "at least 1");
  EXPECT_INPUT_ERROR(check_batch(4, 1, 0), "at least 1");
}

TEST(CheckPieces, SuggestsTheNearestValidSizes) {
  EXPECT_NO_THROW(check_pieces(16, 8));
  EXPECT_INPUT_ERROR(check_pieces(10, 8),
                     "a batch of 10 sequences cannot be cut into 8 pieces (--sharding ...:pieces=8); the nearest sizes "
                     "that can: 8 and 16");
  EXPECT_INPUT_ERROR(check_pieces(4, 8), "the nearest sizes that can: 8");
  EXPECT_INPUT_ERROR(check_pieces(0, 8), "at least 1");
  EXPECT_INPUT_ERROR(check_pieces(8, 0), "at least 1");
}

}  // namespace
}  // namespace fsdp::data

// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/sequence.hpp>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/policy_text.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp {
namespace {

static_assert(SequencePolicy<WholeSequences> && SequencePolicy<Ulysses>);
static_assert(!SequencePolicy<int>);
static_assert(!WholeSequences::shards && Ulysses::shards);

TEST(SequencePolicies, HaveTheTextOfTheFlag) {
  EXPECT_EQ(policy_text(WholeSequences()), "whole");
  EXPECT_EQ(policy_text(Ulysses()), "whole");
  EXPECT_EQ(policy_text(Ulysses{.ranks = 4}), "ulysses:4");
  EXPECT_EQ(policy_text(Ulysses{.ranks = 4, .parts = 2}), "ulysses:4:parts=2");
}

TEST(SequenceGroup, IsOfConsecutiveRanks) {
  EXPECT_EQ(sequence_group(5, 8, 1), (SequenceGroup{.index = 5, .count = 8, .member = 0, .size = 1}));
  EXPECT_EQ(sequence_group(5, 8, 2), (SequenceGroup{.index = 2, .count = 4, .member = 1, .size = 2}));
  EXPECT_EQ(sequence_group(5, 8, 4), (SequenceGroup{.index = 1, .count = 2, .member = 1, .size = 4}));
  EXPECT_EQ(sequence_group(5, 8, 8), (SequenceGroup{.index = 0, .count = 1, .member = 5, .size = 8}));
}

TEST(CheckRanksPerSequence, SaysWhichNumbersWouldDo) {
  for (const int ranks : {1, 2, 3, 6}) EXPECT_NO_THROW(check_ranks_per_sequence(ranks, 6));
  EXPECT_INPUT_ERROR(check_ranks_per_sequence(4, 6),
                     "sequence: 6 ranks cannot be cut into groups of 4, which share each sequence; give 1, 2, 3 or 6");
  EXPECT_INPUT_ERROR(check_ranks_per_sequence(2, 1),
                     "1 rank cannot be cut into groups of 2, which share each "
                     "sequence; give 1");
  EXPECT_INPUT_ERROR(check_ranks_per_sequence(8, 4), "give 1, 2 or 4");
  EXPECT_INPUT_ERROR(check_ranks_per_sequence(0, 4), "sequence: 0 ranks share each sequence; give at least 1");
}

TEST(CheckHeadsOfSequence, SaysWhichNumbersOfTheseRanksWouldDo) {
  EXPECT_NO_THROW(check_heads_of_sequence(12, 4, 8));
  EXPECT_INPUT_ERROR(check_heads_of_sequence(12, 8, 8),
                     "sequence: 12 heads of attention cannot be divided among 8 ranks that share each sequence; of 8 "
                     "ranks 1, 2 or 4 can share one");
  EXPECT_INPUT_ERROR(check_heads_of_sequence(9, 2, 4), "of 4 ranks 1 can share one");
}

TEST(CheckMiddleParts, SaysWhichNumbersWouldDo) {
  for (const int parts : {1, 2, 3, 6}) EXPECT_NO_THROW(check_middle_parts(6, parts));
  EXPECT_INPUT_ERROR(check_middle_parts(6, 4),
                     "sequence: the 6 heads of each rank cannot be cut into 4 parts; give 1, 2, 3 or 6");
  EXPECT_INPUT_ERROR(check_middle_parts(6, 0), "cannot be cut into 0 parts");
}

TEST(CheckSequenceLength, SaysTheLeastLengthAndTheMostRanks) {
  EXPECT_NO_THROW(check_sequence_length(4, 4));
  EXPECT_INPUT_ERROR(check_sequence_length(3, 4),
                     "sequence: a length of 3 leaves some of the 4 ranks that share each sequence without a row; give "
                     "a length of at least 4, or at most 3 ranks");
}

}  // namespace
}  // namespace fsdp

// SPDX-License-Identifier: Apache-2.0
// The texts of strategies round-trip.
#include <gtest/gtest.h>

#include <tessera/fsdp/buffer/layout_policies.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include "support/temporary_folder.hpp"

namespace fsdp {
namespace {

static_assert(tensors_whole<Replicated> && tensors_whole<WithLayout<Zero2, buffer::Owned>>);
static_assert(tensors_whole<HybridShard<WithLayout<Zero3, buffer::Owned>>>);
static_assert(!tensors_whole<FullyShard<>> && !tensors_whole<WithLayout<Zero2, buffer::Rows>>);
static_assert(!tensors_whole<HybridShard<WithLayout<Zero3, buffer::Owned>, OptimizerAcross::sharded>>);
static_assert(tensors_whole<HybridShard<WithLayout<Zero3, buffer::Blocks>, OptimizerAcross::sharded>>);
static_assert(!tensors_whole<RunTimeSharded>);  // its layout is a value

template <class Strategy>
std::string read_back(const char* text) {
  const auto strategy = read_strategy<Strategy>(text);
  return strategy ? policy_text(*strategy) : "nothing";
}

TEST(StrategyText, RoundTrips) {
  for (const char* text : {"fsdp2", "fsdp2:deferred", "fsdp2:prefetch=0", "fsdp2:deferred:prefetch=3", "fsdp2:budget=9",
                           "fsdp2:budget=auto"})
    EXPECT_EQ(read_back<FullyShard<>>(text), text);
  EXPECT_EQ(read_back<FullyShard<ReshardAfterForward::no>>("fsdp2:no-reshard:prefetch=2"),
            "fsdp2:no-reshard:prefetch=2");
  EXPECT_EQ(read_back<FullyShard<ReshardAfterForward::to_group>>("fsdp2:4:deferred"), "fsdp2:4:deferred");
  EXPECT_EQ(read_back<Zero1>("zero1"), "zero1");
  EXPECT_EQ(read_back<Zero2>("zero2"), "zero2");
  for (const char* text : {"zero3", "zero3:prefetch=2:persist=64:live=100000"}) EXPECT_EQ(read_back<Zero3>(text), text);
  for (const char* text : {"hybrid:2", "hybrid:2:deferred:prefetch=2"})
    EXPECT_EQ(read_back<HybridShard<FullyShard<>>>(text), text);
  EXPECT_EQ(read_back<RunTimeHybridFull>("hybrid:no-reshard:4:full"), "hybrid:4:full:fsdp2:no-reshard");
  EXPECT_EQ((read_back<HybridShard<FullyShard<>, OptimizerAcross::sharded>>("hybrid:4:full")), "hybrid:4:full");
  EXPECT_EQ(read_back<Replicated>("replicated"), "replicated");
  for (const char* text : {"fsdp2:pieces=8", "fsdp2:deferred:prefetch=2:pieces=8"})
    EXPECT_EQ(read_back<Reproducible<FullyShard<>>>(text), text);
  EXPECT_EQ(read_back<Reproducible<FullyShard<ReshardAfterForward::to_group>>>("fsdp2:2:pieces=8"), "fsdp2:2:pieces=8");
  EXPECT_EQ(read_back<Reproducible<Zero1>>("zero1:pieces=8"), "zero1:pieces=8");
}

/// A compile-time strategy reads only its own text; a run-time strategy holds the one that the text specifies.
TEST(StrategyText, IsOnlyReadByItsOwnStrategyType) {
  EXPECT_EQ(read_back<Zero3>("zero2"), "nothing");
  EXPECT_EQ(read_back<FullyShard<>>("fsdp2:no-reshard"), "nothing");
  EXPECT_EQ(read_back<FullyShard<>>("fsdp2:2"), "nothing");
  EXPECT_EQ(read_back<HybridShard<Zero3>>("hybrid:2"), "nothing");
  EXPECT_EQ(read_back<HybridShard<Zero3>>("hybrid:2:zero3"), "hybrid:2:zero3");
  EXPECT_EQ(read_back<Reproducible<Zero3>>("zero3"), "nothing");
  EXPECT_EQ(read_back<Zero3>("zero3:pieces=2"), "nothing");
  EXPECT_EQ(read_strategy<RunTimeSharded>("zero2")->strategy.index(), RunTimeSharded{Zero2{}}.strategy.index());
  EXPECT_EQ(read_strategy<Reproducible<Zero3>>("zero3:pieces=8:persist=7")->persistence_threshold, 7);
}

TEST(StrategyText, OfANestedStrategyContainsBoth) {
  EXPECT_EQ(policy_text(Offload<FullyShard<>>{{.prefetch_depth = 2}}), "fsdp2:prefetch=2:offload=optimizer");
  EXPECT_EQ(policy_text(WithLayout<FullyShard<>, buffer::Flat>{}), "fsdp2:layout=flat");
  EXPECT_EQ(policy_text(HybridShard<Zero3>{.group = 2, .inner = {.live_bound = 9}}), "hybrid:2:zero3:live=9");
  EXPECT_EQ(policy_text(HybridShard<WithLayout<FullyShard<>, buffer::Rows>>{.group = 2}), "hybrid:2:layout=rows");
}

TEST(KindText, HasPlaceholdersForParametersOfTheStrategyOnly) {
  EXPECT_EQ(listed_text(FullyShard<ReshardAfterForward::to_group>{.prefetch_depth = 2, .group = 4}, true), "fsdp2:K");
  EXPECT_EQ(listed_text(HybridShard<FullyShard<>>{}, true), "hybrid:K");
  EXPECT_EQ(listed_text(HybridShard<Zero3, OptimizerAcross::sharded>{}, true), "hybrid:K:full:zero3");
  EXPECT_EQ(listed_text(HybridShard<WithLayout<Zero3, buffer::Rows>>{}, true), "hybrid:K:zero3:layout=rows");
  EXPECT_EQ(listed_text(Reproducible<Zero3>{{.live_bound = 9}, 8}, true), "zero3:pieces=V");
  EXPECT_EQ(listed_text(WithLayout<FullyShard<>, buffer::Owned>{}, true), "fsdp2:layout=owned");
}

/// User-defined strategies, nested in built-in ones.
struct Mine {
  using AtRest = buffer::Shard;
  using Layout = buffer::Flat;
  sharding::Rules rules() const { return {}; }
  std::string text() const { return "mine:2"; }
};
struct Named {
  static constexpr std::string_view name = "named";
  using AtRest = buffer::Shard;
  using Layout = buffer::Flat;
  sharding::Rules rules() const { return {}; }
};

TEST(StrategyText, AUserDefinedStrategyCanBeNested) {
  EXPECT_EQ(policy_text(Offload<Mine>{}), "mine:2:offload=optimizer");
  EXPECT_EQ(policy_text(HybridShard<Named>{.group = 3}), "hybrid:3:named");
  EXPECT_EQ(listed_text(Reproducible<Named>{}, true), "named:pieces=V");
}

static_assert(SequencePolicy<WholeSequences> && SequencePolicy<Ulysses>);
static_assert(!SequencePolicy<int>);
static_assert(!WholeSequences::shards && Ulysses::shards);

TEST(SequencePolicies, PrintAsTheirFlag) {
  EXPECT_EQ(policy_text(WholeSequences()), "whole");
  EXPECT_EQ(policy_text(Ulysses()), "whole");
  EXPECT_EQ(policy_text(Ulysses{.ranks = 4}), "ulysses:4");
  EXPECT_EQ(policy_text(Ulysses{.ranks = 4, .parts = 2}), "ulysses:4:parts=2");
}

TEST(SequenceGroup, ConsistsOfConsecutiveRanks) {
  EXPECT_EQ(sequence_group(5, 8, 1), (SequenceGroup{.index = 5, .count = 8, .member = 0, .size = 1}));
  EXPECT_EQ(sequence_group(5, 8, 2), (SequenceGroup{.index = 2, .count = 4, .member = 1, .size = 2}));
  EXPECT_EQ(sequence_group(5, 8, 4), (SequenceGroup{.index = 1, .count = 2, .member = 1, .size = 4}));
  EXPECT_EQ(sequence_group(5, 8, 8), (SequenceGroup{.index = 0, .count = 1, .member = 5, .size = 8}));
}

TEST(CheckRanksPerSequence, SuggestsValidNumbersOfRanks) {
  for (const int ranks : {1, 2, 3, 6}) EXPECT_NO_THROW(check_ranks_per_sequence(ranks, 6));
  EXPECT_INPUT_ERROR(check_ranks_per_sequence(4, 6),
                     "sequence: 6 ranks cannot be cut into groups of 4, which share each sequence; give 1, 2, 3 or 6");
  EXPECT_INPUT_ERROR(check_ranks_per_sequence(2, 1),
                     "1 rank cannot be cut into groups of 2, which share each "
                     "sequence; give 1");
  EXPECT_INPUT_ERROR(check_ranks_per_sequence(8, 4), "give 1, 2 or 4");
  EXPECT_INPUT_ERROR(check_ranks_per_sequence(0, 4), "sequence: 0 ranks share each sequence; give at least 1");
}

TEST(CheckHeadsOfSequence, SuggestsNumbersOfRanksThatDivideTheHeads) {
  EXPECT_NO_THROW(check_heads_of_sequence(12, 4, 8));
  EXPECT_INPUT_ERROR(check_heads_of_sequence(12, 8, 8),
                     "sequence: 12 heads of attention cannot be divided among 8 ranks that share each sequence; of 8 "
                     "ranks 1, 2 or 4 can share one");
  EXPECT_INPUT_ERROR(check_heads_of_sequence(9, 2, 4), "of 4 ranks 1 can share one");
}

TEST(CheckMiddleParts, SuggestsValidNumbersOfParts) {
  for (const int parts : {1, 2, 3, 6}) EXPECT_NO_THROW(check_middle_parts(6, parts));
  EXPECT_INPUT_ERROR(check_middle_parts(6, 4),
                     "sequence: the 6 heads of each rank cannot be cut into 4 parts; give 1, 2, 3 or 6");
  EXPECT_INPUT_ERROR(check_middle_parts(6, 0), "cannot be cut into 0 parts");
}

TEST(CheckSequenceLength, ReportsTheMinimumLengthAndMaximumRanks) {
  EXPECT_NO_THROW(check_sequence_length(4, 4));
  EXPECT_INPUT_ERROR(check_sequence_length(3, 4),
                     "sequence: a length of 3 leaves some of the 4 ranks that share each sequence without a row; give "
                     "a length of at least 4, or at most 3 ranks");
}

}  // namespace
}  // namespace fsdp

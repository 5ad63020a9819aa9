// SPDX-License-Identifier: Apache-2.0
// Which pieces of a step the ranks of a group compute, and which models support sharing sequences between ranks.
#include <tessera/fsdp/sequence/ulysses.hpp>

#include <array>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/module/stack.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp {
namespace {

using Comm = comm::Threads<>;
using Pieces = Stack<Reproducible<FullyShard<>>, Comm, Fp32, tiling::Untiled, Ulysses>;
using Plain = Stack<FullyShard<>, Comm, Fp32, tiling::Untiled, Ulysses>;

const std::vector<Unit> units = {{.name = "unit", .parameters = {{"w", {8, 4}}}}};

/// The piece of a rank in each micro-batch of a step; empty if it has none.
using OwnPieces = std::vector<std::optional<int>>;

template <class StackT>
std::vector<OwnPieces> pieces_of_ranks(int ranks, const typename StackT::Sharding& sharding, const PassPlan& passes) {
  std::vector<OwnPieces> all(static_cast<std::size_t>(ranks));
  Comm::run(ranks, {}, [&](Comm& communicator) {
    ShardedModule<StackT> module(communicator, units, sharding, {.passes = passes});
    OwnPieces& own = all[static_cast<std::size_t>(communicator.rank())];
    for (int m = 0; m < passes.micro_batches; ++m) own.push_back(module.step_piece(m));
    EXPECT_EQ(module.own_micro_batches(),
              std::ranges::count_if(own, [](const auto& piece) { return piece.has_value(); }));
  });
  return all;
}

TEST(StepPieces, RanksOfAGroupComputeTheSamePieces) {
  const PassPlan passes{.micro_batches = 3, .ranks_per_sequence = 2};
  const OwnPieces first = {0, 2, 4}, second = {1, 3, std::nullopt};
  EXPECT_EQ(pieces_of_ranks<Pieces>(4, {{}, 5}, passes), (std::vector<OwnPieces>{first, first, second, second}));
  EXPECT_EQ(pieces_of_ranks<Plain>(4, {}, passes), (std::vector<OwnPieces>{first, first, {1, 3, 5}, {1, 3, 5}}));
  const PassPlan all{.micro_batches = 5, .ranks_per_sequence = 4};
  EXPECT_EQ(pieces_of_ranks<Pieces>(4, {{}, 5}, all), std::vector<OwnPieces>(4, {0, 1, 2, 3, 4}));
}

TEST(StepPieces, RefuseWrongMicroBatchCountsAndUnevenGroups) {
  const auto planned = [](int ranks, const PassPlan& passes) { (void)pieces_of_ranks<Pieces>(ranks, {{}, 5}, passes); };
  EXPECT_INPUT_ERROR(planned(4, {.micro_batches = 2, .ranks_per_sequence = 2}),
                     "a step of 5 pieces on 2 groups of 2 ranks has 3 micro-batches, and 2 are planned; give "
                     "micro_batches_of(pieces, groups)");
  EXPECT_INPUT_ERROR(planned(4, {.micro_batches = 3, .ranks_per_sequence = 3}),
                     "4 ranks cannot be cut into groups of 3, which share each sequence; give 1, 2 or 4");
}

TEST(StepPieces, RefuseGroupSizesThatDifferBetweenRanks) {
  EXPECT_INPUT_ERROR(Comm::run(4, {},
                               [&](Comm& communicator) {
                                 const int sharing = communicator.rank() == 3 ? 4 : 2;
                                 ShardedModule<Plain> module(communicator, units, {},
                                                             {.passes = {.ranks_per_sequence = sharing}});
                               }),
                     "rank 3 has another schedule than rank 0");
}

TEST(SharedModule, RequiresAStackThatShardsSequences) {
  using Whole = Stack<FullyShard<>, Comm, Fp32>;
  EXPECT_INPUT_ERROR(pieces_of_ranks<Whole>(2, {}, {.ranks_per_sequence = 2}),
                     "sequence: 2 ranks are to share each sequence, and this stack has whole ones; take fsdp::Ulysses "
                     "as its fifth policy, or 1 rank");
}

/// A model whose blocks can divide their middle stage into `heads` parts.
template <class SequenceT>
struct OfHeads {
  struct Stack {
    using Sequence = SequenceT;
  };
  struct Block {
    std::int64_t heads;
    std::int64_t shares() const { return heads; }
  };
  struct Entry {
    static constexpr bool row_wise = true;
  };
  using Head = Entry;
  std::array<std::int64_t, 2> heads;
  int blocks() const { return 2; }
  Block block(int i) const { return {heads[static_cast<std::size_t>(i)]}; }
};
/// The same model with an entry that is not row-wise, for example because it adds positions, and with a head that pools
/// its rows.
struct OfPositions : OfHeads<Ulysses> {
  struct Entry {};
};
struct Pooled : OfHeads<Ulysses> {
  struct Head {
    static constexpr bool row_wise = false;
  };
};
struct WithoutStages {
  using Stack = OfHeads<Ulysses>::Stack;
  using Entry = OfHeads<Ulysses>::Entry;
  using Head = Entry;
  struct Block {};
  int blocks() const { return 1; }
  Block block(int) const { return {}; }
};

TEST(CheckSharedSequences, ReportsInvalidCombinationsAndAlternatives) {
  const RunShape four{.size = {.sequence_length = 16, .ranks_per_sequence = 4}};
  const RunShape whole{.size = {.sequence_length = 1}};
  EXPECT_NO_THROW(check_shared_sequences(OfHeads<WholeSequences>{{7, 7}}, whole, 3));
  EXPECT_NO_THROW(check_shared_sequences(WithoutStages(), whole, 3));
  EXPECT_INPUT_ERROR(
      check_shared_sequences(OfHeads<Ulysses>{{8, 8}}, {.size = {.sequence_length = 3, .ranks_per_sequence = 4}}, 8),
      "give a length of at least 4, or at most 3 ranks");
  EXPECT_INPUT_ERROR(check_shared_sequences(OfHeads<Ulysses>{{8, 6}}, four, 8),
                     "6 heads of attention cannot be divided among 4 ranks that share each sequence; of 8 ranks 1 or 2 "
                     "can share one");
  EXPECT_INPUT_ERROR(
      check_shared_sequences(OfHeads<Ulysses>{{8, 8}}, {.size = {.sequence_length = 16, .middle_parts = 2}}, 8),
      "attention is to be done in 2 parts, which ranks that share a sequence do");
  EXPECT_INPUT_ERROR(check_shared_sequences(OfPositions{{{8, 8}}}, four, 8),
                     "this model's entry does not say that each row is computed from that row alone");
  EXPECT_INPUT_ERROR(check_shared_sequences(Pooled{{{8, 8}}}, four, 8), "this model's head does not say");
  EXPECT_INPUT_ERROR(check_shared_sequences(WithoutStages(), four, 8),
                     "block 0 of this model does not state which of its stages mix tokens");
}

TEST(PartsLikeTiles, AreTheFewestSuchThatTwoPartsFitIntoATile) {
  const auto all = [](std::int64_t) { return true; };
  const auto parts = [&](std::int64_t tile_rows) { return plan::parts_like_tiles(6, 100, tile_rows, all); };
  EXPECT_EQ(parts(100), 1);
  EXPECT_EQ(parts(99), 3) << "two of two parts are all of it";
  EXPECT_EQ(parts(68), 3);
  EXPECT_EQ(parts(67), 6);
  EXPECT_EQ(parts(1), 6) << "there are no more heads";
  EXPECT_EQ(plan::parts_like_tiles(6, 100, 99, [](std::int64_t count) { return count != 3; }), 6);
  EXPECT_EQ(plan::parts_like_tiles(2, 100, 1, all), 1) << "two parts would be on their way together";
}

}  // namespace
}  // namespace fsdp

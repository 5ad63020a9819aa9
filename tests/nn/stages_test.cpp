// SPDX-License-Identifier: Apache-2.0
// Stages of a block: K ranks that share the rows of a micro-batch, with the middle stage in P parts, compute the same
// results as the whole block.
#include <tessera/fsdp/testing/staged_run.hpp>

#include <range/v3/view/zip.hpp>

#include <examples/19_own_sequence/causal_mean.hpp>
#include <tessera/fsdp/nn/recomputed.hpp>
#include <tessera/fsdp/sequence/staged_block.hpp>

#include <support/temporary_folder.hpp>

#include "unit.hpp"

namespace fsdp::nn {
namespace {

using namespace reference;
using fsdp::testing::Sharing;
using mixer::CausalMean;

using Here = Local<device::Cpu, Fp32>;
static_assert(StagedBlock<StagedOf<ResidualAttention<Here>>, Here> &&
              StagedBlock<StagedOf<TransformerBlock<Here>>, Here>);
static_assert(all_kinds_are_staged<Recomputed<TransformerBlock<Here>, Here>, Here>);
static_assert(StagedBlock<CausalMean<Here>, Here> && !all_kinds_are_staged<ResidualMlp<Here>, Here>);
static_assert(!StagedBlock<ResidualMlp<Here>, Here>);

/// A block whose stages work on three rows at a time.
template <class L>
struct TiledBlock : TransformerBlock<L> {};
template <class L>
StagedTransformerBlock<L> staged(const TiledBlock<L>& block) {
  return {block, {block.attention, 3}};
}
struct BlockInTiles : Block {
  template <class L>
  static TiledBlock<L> make(const Sizes& s) {
    return {Block::make<L>(s)};
  }
};
template <bool on>
struct RecomputedBlock : Block {
  template <class L>
  static Recomputed<TiledBlock<L>, L> make(const Sizes& s) {
    return {BlockInTiles::make<L>(s), on};
  }
};

struct CausalMeanBlock {
  using Sizes = reference::Sizes;
  template <class L>
  static CausalMean<L> make(const Sizes& s) {
    return {{}, s.hidden, s.heads};
  }
};

/// The outcome of a step with two micro-batches, by the whole block (`sharing` is null) or shared by ranks.
template <class Kind, class Precision = Fp32>
Outcome outcome_of_two(const Sizes& sizes, const Sharing* sharing, const Run<>& run = {}) {
  Unit<device::Cpu, Kind, Precision> unit(sizes, run);
  unit.context.noise = {.key = 7, .first_row = 11};
  bool good = true;
  auto found = sharing == nullptr ? fsdp::testing::outcome_of(unit, sizes.in_words(), {seed_of(0), seed_of(1)}, good)
                                  : staged_outcome_of(unit, *sharing, sizes.in_words(), {seed_of(0), seed_of(1)}, good);
  found.gradients.insert(found.gradients.end(), found.dx.begin(), found.dx.end());
  return {found.y, found.gradients};
}

template <class Kind>
void expect_shared_is_whole(const Sizes& sizes, const std::vector<Sharing>& sharings) {
  const Outcome expected = outcome_of_two<Kind>(sizes, nullptr);
  for (const Sharing& sharing : sharings) {
    SCOPED_TRACE(sharing.in_words());
    const Outcome found = outcome_of_two<Kind>(sizes, &sharing);
    ASSERT_EQ(found.y.size(), expected.y.size());
    ASSERT_EQ(found.gradients.size(), expected.gradients.size());
    for (const auto& [of_y, wanted] : ranges::views::zip(found.y, expected.y))
      EXPECT_LE(device::reference::difference(of_y, wanted), 1e-5) << "y";
    for (const auto& [gradient, wanted] : ranges::views::zip(found.gradients, expected.gradients))
      EXPECT_LE(device::reference::difference(gradient, wanted), 1e-5) << "gradient";
  }
}

/// All combinations of ranks and parts for 12 heads.
const std::vector<Sharing> all_sharings = {{1, 1}, {1, 2}, {1, 3}, {2, 1}, {2, 2},
                                           {2, 3}, {3, 1}, {3, 2}, {4, 1}, {4, 3}};

/// 18 rows are not divisible by 4, so ranks begin and end in the middle of sequences.
Sizes sizes_of(std::int64_t kv_heads) {
  return {
      .sequences = 2, .length = 9, .hidden = 7, .intermediate = 5, .heads = 12, .kv_heads = kv_heads, .head_dim = 4};
}

TEST(Stages, SplitRowsOverRanksForAnyNumberOfKeyValueHeads) {
  for (const std::int64_t kv_heads : {1, 2, 3, 4, 6, 12}) {
    SCOPED_TRACE(kv_heads);
    expect_shared_is_whole<Block>(sizes_of(kv_heads), all_sharings);
  }
}

TEST(Stages, OfBlocksWithBiasesNormsOfHeadsWindowsAndPackedDocuments) {
  for (const std::int64_t kv_heads : {3, 4}) {
    Sizes sizes = sizes_of(kv_heads);
    sizes.biases = sizes.head_norms = true;
    expect_shared_is_whole<Block>(sizes, all_sharings);
    sizes.window = 4;
    sizes.documents = {0, 1, 5, 5, 9, 12, 18};
    expect_shared_is_whole<BlockInTiles>(sizes, all_sharings);
    expect_shared_is_whole<AttentionHalf>(sizes, all_sharings);
  }
}

TEST(Stages, OfPathsOfLowRankDropTheSameElementsAsTheWholeBlock) {
  for (const std::int64_t kv_heads : {2, 4}) {
    Sizes sizes = sizes_of(kv_heads);
    sizes.rank = 3;
    sizes.scale = 0.7f;
    sizes.dropout = 0.3f;
    sizes.biases = true;
    for (const char* const paths : {"qkvogud", "qv", "ko"}) {
      sizes.paths = paths;
      expect_shared_is_whole<BlockInTiles>(sizes, all_sharings);
    }
  }
}

TEST(Stages, AreRerunByARecomputedBlock) {
  Sizes sizes = sizes_of(2);
  sizes.head_norms = true;
  expect_shared_is_whole<RecomputedBlock<true>>(sizes, all_sharings);
  expect_shared_is_whole<RecomputedBlock<false>>(sizes, all_sharings);
}

TEST(Stages, OfABlockThatIsNotATransformer) { expect_shared_is_whole<CausalMeanBlock>(sizes_of(1), all_sharings); }

TEST(Stages, OfOneRankInOnePartAreBitIdenticalToTheBlock) {
  const Sharing alone;
  Sizes sizes = sizes_of(4);
  sizes.rank = 3;
  sizes.dropout = 0.3f;
  for (const bool more : {false, true}) {
    sizes.biases = sizes.head_norms = more;
    const auto expect_bits = [&]<class Kind, class Precision>(Kind, Precision) {
      const Outcome expected = outcome_of_two<Kind, Precision>(sizes, nullptr),
                    found = outcome_of_two<Kind, Precision>(sizes, &alone);
      EXPECT_TRUE(found.y == expected.y);
      EXPECT_TRUE(found.gradients == expected.gradients);
    };
    expect_bits(BlockInTiles{}, Fp32{});
    expect_bits(BlockInTiles{}, Bf16Mixed{});
    expect_bits(RecomputedBlock<true>{}, Bf16Mixed{});
  }
}

TEST(Stages, InBf16MatchFloat64) {
  Sizes sizes = sizes_of(2);
  sizes.heads = 8;
  sizes.head_norms = true;
  sizes.rank = 2;
  const Outcome expected = expected_outcome<Block, Bf16Mixed>(sizes, 2);
  const double whole = relative(outcome_of_two<Block, Bf16Mixed>(sizes, nullptr).y, expected.y);
  for (const Sharing& sharing : {Sharing{2, 1}, Sharing{4, 2}}) {
    SCOPED_TRACE(sharing.in_words());
    expect_near(outcome_of_two<BlockInTiles, Bf16Mixed>(sizes, &sharing), expected,
                1.1 * whole,  // each range is summed with one rounding
                gradient_tolerance<Bf16Mixed>);
  }
}

TEST(Stages, AreCountedByDryRuns) {
  Sizes sizes = sizes_of(3);
  sizes.biases = sizes.head_norms = true;
  sizes.rank = 3;
  sizes.dropout = 0.3f;
  const auto costs = [&]<class Device, class Precision>(Device, Precision, std::size_t rank) {
    Unit<Device, RecomputedBlock<true>, Precision> unit(sizes, {});
    fsdp::testing::StagedRun<Unit<Device, RecomputedBlock<true>, Precision>> run(unit, {.ranks = 4, .parts = 3});
    run.forward();
    run.backward();
    const auto& work = run.counters(rank);
    return std::vector<std::int64_t>{run.peak(rank), work.matmul_flops, work.attention_flops, work.elementwise_bytes};
  };
  for (const std::size_t rank : {0, 3}) {
    EXPECT_EQ(costs(device::Meta{}, Fp32{}, rank), costs(device::Cpu{}, Fp32{}, rank));
    EXPECT_EQ(costs(device::Meta{}, Bf16Mixed{}, rank), costs(device::Cpu{}, Bf16Mixed{}, rank));
  }
}

TEST(Stages, SaveTheirOwnRowsAndLogSumExpOfTheirOwnHeads) {
  const Sizes sizes = sizes_of(3);
  Unit<device::Meta, Block, Fp32> unit(sizes, {});
  const auto bytes = [](std::int64_t numbers) { return round_up(4 * numbers, device::alignment); };
  for (const Sharing& sharing : {Sharing{2, 1}, Sharing{2, 3}}) {
    fsdp::testing::StagedRun<Unit<device::Meta, Block, Fp32>> run(unit, sharing);
    run.forward();
    const std::int64_t rows = sizes.tokens() / 2, heads = sizes.heads / (2 * sharing.parts);
    EXPECT_EQ(run.kept(0), 2 * bytes(rows) + bytes(rows * sizes.hidden) + bytes(2 * rows * sizes.intermediate) +
                               sharing.parts * bytes(heads * sizes.tokens()));
  }
}

TEST(Stages, OfAllHeadsFuseTheMatmulsOfQueriesKeysAndValues) {
  Unit<device::Meta, AttentionHalf, Fp32> unit(sizes_of(3), {});
  std::vector<device::MatmulRecord> matmuls;
  unit.rank.stream.counters.matmuls = &matmuls;
  unit.forward();
  EXPECT_EQ(matmuls.size(), 2u);
  unit.backward();
  EXPECT_EQ(matmuls.size(), 2u + 4u);
}

TEST(Stages, IndivisibleHeadsAreRefusedWithTheValidNumbers) {
  EXPECT_EQ(equal_ranges(12, 3, 1), (std::vector<HeadRange>{{0, 4}, {4, 8}, {8, 12}}));
  EXPECT_EQ(equal_ranges(12, 2, 2),
            (std::vector<HeadRange>{{0, 3, 0, 6}, {3, 6, 0, 6}, {6, 9, 6, 12}, {9, 12, 6, 12}}));
  EXPECT_EQ(test::input_error_of([] { equal_ranges(12, 5, 1); }),
            "stages: 12 heads cannot be cut into 5 equal ranges, one for each rank of a sequence and each part; "
            "take 1, 2, 3, 4, 6, 12");
}

}  // namespace
}  // namespace fsdp::nn

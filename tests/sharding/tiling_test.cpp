// SPDX-License-Identifier: Apache-2.0
// A tiled step equals the untiled one, under every strategy and for any tiles of each rank.
#include <string_view>

#include <gtest/gtest.h>

#include <support/small_llama.hpp>

namespace fsdp::test {
namespace {

struct Named {
  const char* name;
  tiling::RunTimeTiling tiling;
};

/// The largest budget keeps some tiles of every block, the smallest keeps none.
const Named policies[] = {{"tiles:3", tiling::RunTimeTiling::tiles(3)},
                          {"tokens:5", tiling::RunTimeTiling::tokens(5)},
                          {"tokens:1000", tiling::RunTimeTiling::tokens(1000)},
                          {"budget:1000", tiling::RunTimeTiling::budget(1000)},
                          {"budget:8000", tiling::RunTimeTiling::budget(8000)}};

RunResults one_step(std::string_view strategy, RunOptions options, const tiling::RunTimeTiling& tiling) {
  options.steps = 1;
  options.tiling = tiling;
  return run(strategy, options);
}

class TiledStep : public ::testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(, TiledStep, ::testing::ValuesIn(strategies),
                         [](const auto& strategy) { return test_name(strategy.param); });

TEST_P(TiledStep, MatchesUntiledGradientsOverMicroBatches) {
  const RunOptions options = uneven_options(2, 3);
  const RunResults untiled = one_step(GetParam(), options, {});
  for (const Named& policy : policies) {
    SCOPED_TRACE(policy.name);
    const RunResults tiled = one_step(GetParam(), options, policy.tiling);
    EXPECT_LE(largest_relative(tiled.gradients, untiled.gradients), 1e-6);
    EXPECT_LE(largest_relative(tiled.losses, untiled.losses), 1e-6);
    EXPECT_LT(tiled.memory.front().used_activations, untiled.memory.front().used_activations);
    EXPECT_EQ(tiled.memory.front().used, tiled.memory.front().planned);
    EXPECT_EQ(tiled.records.size(), untiled.records.size());
  }
}

/// Rank r has 1 + 2 r sequences, so that the ranks have 2, 5 and 7 tiles of 5 tokens.
TEST_P(TiledStep, MatchesUntiledGradientsIfTileCountsDifferBetweenRanks) {
  RunOptions options = uneven_options(3);
  options.batch = [](const Place& place) { return some_windows(static_cast<std::size_t>(1 + 2 * place.rank), 7, 37); };
  options.most_sequences = 5;
  const RunResults untiled = one_step(GetParam(), options, {});
  for (const Named& policy : policies) {
    SCOPED_TRACE(policy.name);
    const RunResults tiled = one_step(GetParam(), options, policy.tiling);
    EXPECT_LE(largest_relative(tiled.gradients, untiled.gradients), 1e-6);
    EXPECT_EQ(tiled.records.size(), untiled.records.size());
  }
}

/// Ranks have different numbers of tiles, micro-batches accumulate, and the tied table receives gradients from
/// embedding and head.
TEST(TiledRun, MatchesUntiledGradientsForGroupsOfRanks) {
  for (const auto strategy : {"hybrid:2", "fsdp2:2", "replicated"}) {
    SCOPED_TRACE(strategy);
    RunOptions options = uneven_options(4, 2);
    options.config.tied = true;
    options.batch = [](const Place& place) { return some_windows(static_cast<std::size_t>(1 + place.rank), 7, 37); };
    options.most_sequences = 4;
    const RunResults untiled = one_step(strategy, options, {});
    const RunResults tiled = one_step(strategy, options, tiling::RunTimeTiling::tokens(5));
    EXPECT_LE(largest_relative(tiled.gradients, untiled.gradients), 1e-6);
    EXPECT_EQ(tiled.memory.back().used, tiled.memory.back().planned);  // the rank with the most sequences
  }
}

/// 21 tokens are cut into two tiles, 14 tokens are not cut: the smaller micro-batch has the longer tile, which the plan
/// must include.
TEST(TiledRun, PlansForASmallerMicroBatchWithLongerTiles) {
  RunOptions options = uneven_options(2);
  options.config.layers = 1;
  options.config.intermediate_size = 290;
  options.batch = [](const Place& place) { return some_windows(static_cast<std::size_t>(3 - place.rank), 7, 37); };
  options.most_sequences = 3;
  const RunResults untiled = one_step("fsdp2", options, {});
  const RunResults tiled = one_step("fsdp2", options, tiling::RunTimeTiling::tokens(20));
  EXPECT_LE(largest_relative(tiled.gradients, untiled.gradients), 1e-6);
}

// Blocks that keep only their input: bit-identical results, less memory, and the output of the MLP is never computed
// twice.

RunOptions recomputing(int ranks, int micro_batches, bool recompute, const tiling::RunTimeTiling& tiling = {}) {
  RunOptions options = with_steps(3, uneven_options(ranks, micro_batches));
  options.units.recompute = recompute;
  options.tiling = tiling;
  options.evaluated = some_windows(1, 7, 37);
  return options;
}

/// Modules recompute tile by tile under any strategy, and a schedule gathers for recomputation with any tiling.
/// Therefore the other strategies are tested with the last tiling only.
TEST(Recompute, IsBitIdenticalUnderAnyStrategyAndTiling) {
  const auto last = tiling::RunTimeTiling::tokens(5);
  for (const auto& tiling : sampled({tiling::RunTimeTiling(), tiling::RunTimeTiling::tiles(3), last}))
    for (const std::string_view stack :
         {"fsdp2", "fsdp2/bf16", "fsdp2:no-reshard", "zero1", "zero3", "replicated", "hybrid:2:full", "fsdp2:2"})
      for (const int micro_batches : sampled({1, 3})) {
        if (tiling != last && !stack.starts_with("fsdp2/") && stack != "fsdp2") continue;
        SCOPED_TRACE(message(stack, ", ", micro_batches, " micro-batches"));
        const RunResults kept = run(stack, recomputing(2, micro_batches, false, tiling));
        const RunResults again = run(stack, recomputing(2, micro_batches, true, tiling));
        expect_same_bits(again, kept);
        EXPECT_EQ(again.last_evaluation, kept.last_evaluation);
        EXPECT_EQ(again.memory[0].used, again.memory[0].planned);
        EXPECT_LT(again.memory[0].used_activations, kept.memory[0].used_activations);
        EXPECT_EQ(again.records.size(), kept.records.size()) << "the replay uses backward's own gather";
      }
}

TEST(Recompute, IsBitIdenticalWithATiedTable) {
  const auto trained = [](bool recompute) {
    RunOptions options = recomputing(2, 2, recompute);
    options.config.tied = true;
    return run("fsdp2", options);
  };
  const RunResults kept = trained(false), again = trained(true);
  expect_same_bits(again, kept);
}

}  // namespace
}  // namespace fsdp::test

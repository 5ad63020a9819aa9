// SPDX-License-Identifier: Apache-2.0
#include <tessera/tiling/policies.hpp>

#include <limits>
#include <string>

#include <gtest/gtest.h>

#include <tessera/fsdp/testing/tiling.hpp>
#include <tessera/tiling/policies.hpp>

#include <support/temporary_folder.hpp>

namespace fsdp::tiling {
namespace {

/// An MLP of hidden size H and intermediate size I in bf16, inside a block.
Problem mlp(std::int64_t tokens, std::int64_t hidden = 64, std::int64_t intermediate = 192, std::int64_t repeats = 1) {
  return {.tokens = tokens,
          .columns = intermediate,
          .kept_bytes_per_token = 2 * intermediate * 2,
          .tile_bytes_per_token = hidden * 2,
          .tile_bytes_per_token_column = 3 * 2,
          .blocked_bytes_per_token = hidden * 4,
          .recomputed_flops_per_token = 4 * hidden * intermediate,
          .traffic_per_tile = 42 * hidden * intermediate,
          .repeats = repeats};
}

static_assert(Budget{100}.plan({.tokens = 3, .tile_bytes_per_token = 50}).tiles.size() == 2,
              "a plan can be made at compile time");

/// The cost of a plan that a budget minimises: recomputed FLOPs, and traffic in the same unit.
std::int64_t work(const Problem& problem, const TilePlan& plan) {
  return plan.recomputed_flops +
         static_cast<std::int64_t>(plan.tiles.size()) * problem.traffic_per_tile * problem.flops_per_byte;
}

TEST(Budget, FitsItsBytesAndNeverDoesMoreWorkWithMoreBytes) {
  for (const std::int64_t tokens : {1, 2, 3, 5, 7, 9, 1000, 4097})
    for (const std::int64_t repeats : {1, 7}) {
      const Problem problem = mlp(tokens, 64, 192, repeats);
      const std::int64_t untiled = Untiled{}.plan(problem).peak_bytes();
      const std::int64_t smallest = smallest_budget(problem);
      std::int64_t most_work = std::numeric_limits<std::int64_t>::max();
      for (std::int64_t bytes = smallest; bytes < 2 * untiled; bytes += std::max<std::int64_t>(untiled / 97, 1)) {
        SCOPED_TRACE(::testing::Message() << tokens << " tokens, " << repeats << " units, " << bytes << " bytes");
        const TilePlan plan = Budget{bytes}.plan(problem);
        testing::expect_valid_plan({.unit = "an MLP", .problem = problem}, plan);
        EXPECT_LE(plan.peak_bytes(), bytes);
        if (bytes >= untiled) {
          EXPECT_EQ(plan, Untiled{}.plan(problem));
        }
        if (plan.columns_per_block > 0) {
          EXPECT_EQ(plan.columns_per_block % tile_step, 0);
        }
        EXPECT_LE(work(problem, plan), most_work);
        most_work = work(problem, plan);
      }
    }
}

/// The least work over all plans that keep `kept` tokens in tiles of one length and recompute the rest in tiles of
/// another length, by exhaustive search.
std::int64_t least_work(const Problem& problem, std::int64_t bytes) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t kept = 0; kept <= problem.tokens; ++kept)
    for (std::int64_t tile = shortest_tile; tile <= problem.tokens; tile += tile_step) {
      const std::int64_t workspace = kept == problem.tokens ? problem.kept_tile_bytes(tile) : problem.tile_bytes(tile);
      if (problem.repeats * kept * problem.kept_bytes_per_token + workspace > bytes) continue;
      const std::int64_t kept_tile = std::max(std::min(workspace / problem.kept_tile_bytes(1), problem.tokens), tile);
      const std::int64_t tiles = ceil_divide(kept, kept_tile) + ceil_divide(problem.tokens - kept, tile);
      least = std::min(least, (problem.tokens - kept) * problem.recomputed_flops_per_token +
                                  tiles * problem.traffic_per_tile * problem.flops_per_byte);
    }
  return least;
}

TEST(Budget, IsThePlanWithTheLeastWorkThatFits) {
  for (const std::int64_t repeats : {1, 3}) {
    const Problem problem = mlp(2048, 64, 192, repeats);
    const std::int64_t untiled = Untiled{}.plan(problem).peak_bytes();
    for (std::int64_t bytes = problem.tile_bytes(shortest_tile); bytes < untiled; bytes += untiled / 41)
      EXPECT_LE(work(problem, Budget{bytes}.plan(problem)), least_work(problem, bytes)) << bytes << " bytes";
  }
}

TEST(Budget, PrefersShorterTilesToRecomputation) {
  const Problem problem = mlp(4096);
  const TilePlan plan = Budget{4096 * problem.kept_bytes_per_token + problem.kept_tile_bytes(1024)}.plan(problem);
  EXPECT_EQ(plan.recomputed_flops, 0);
  EXPECT_EQ(plan.tiles.size(), 4u);
}

TEST(Budget, KeepsLogitsOfAHeadInAsFewTilesAsFit) {
  const Problem head{.tokens = 1000,
                     .columns = 5000,
                     .tile_bytes_per_token = 8,
                     .tile_bytes_per_token_column = 2,
                     .blocked_bytes_per_token = 16,
                     .traffic_per_tile = 100};
  const TilePlan plan = Budget{head.tile_bytes(512)}.plan(head);
  EXPECT_EQ(plan.tiles, (std::vector<Tile>{{0, 512}, {512, 1000}}));
  EXPECT_EQ(plan.columns_per_block, 0);
}

TEST(Budget, CutsColumnsIfNotEvenTheShortestTileFits) {
  const Problem problem = mlp(1000, 64, 1000);
  const std::int64_t bytes = problem.tile_bytes(shortest_tile) / 2;
  const TilePlan plan = Budget{bytes}.plan(problem);
  testing::expect_valid_plan({.unit = "an MLP", .problem = problem}, plan);
  EXPECT_EQ(plan.longest_tile(), shortest_tile);
  EXPECT_GT(plan.columns_per_block, 0);
  EXPECT_EQ(plan.tile_bytes, problem.tile_bytes(shortest_tile, plan.columns_per_block));
  EXPECT_LE(plan.tile_bytes, bytes);
}

TEST(Budget, OneByteBelowTheSmallestBudgetIsAnError) {
  for (const Problem& problem : {mlp(5), mlp(5, 64, 17), Problem{.tokens = 5, .tile_bytes_per_token = 10}}) {
    const std::int64_t smallest = smallest_budget(problem);
    const TilePlan plan = Budget{smallest}.plan(problem);
    EXPECT_EQ(plan.longest_tile(), 1);
    EXPECT_EQ(plan.peak_bytes(), smallest);
    EXPECT_INPUT_ERROR(Budget{smallest - 1}.plan(problem), "at least " + std::to_string(smallest));
  }
}

}  // namespace
}  // namespace fsdp::tiling

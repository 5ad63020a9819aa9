// SPDX-License-Identifier: Apache-2.0
#include <tessera/tiling/policies.hpp>

#include <limits>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include <tessera/fsdp/testing/tiling.hpp>

#include <support/temporary_folder.hpp>

namespace fsdp::tiling {
namespace {

struct WrongResult {
  int plan(const Problem&) const { return 1; }
};
struct NotConst {
  TilePlan plan(const Problem&) { return {}; }
};

static_assert(check_tiling<Untiled>() && check_tiling<StaticTiles<4>>() && check_tiling<TokensPerTile<4>>());
static_assert(check_tiling<RunTimeTiling>() && check_tiling<Budget>() && check_tiling<StaticBudget<1>>());
static_assert(!Tiling<int> && !Tiling<WrongResult> && !Tiling<NotConst>);
static_assert(Untiled{}.plan({.tokens = 3}).tiles.size() == 1, "a plan can be made at compile time");

constexpr std::int64_t kept_per_token = 7;
constexpr std::int64_t tile_per_token = 10;
constexpr std::int64_t recomputed_per_token = 3;
constexpr std::int64_t lengths[] = {1, 2, 3, 5, 7, 9, 1000, 4097};
constexpr std::int64_t numbers[] = {1, 2, 3, 4, 5, 8, 999, 1000, 1001, 4096, 4097, 5000};

Problem problem_of(std::int64_t tokens) {
  return {.tokens = tokens,
          .kept_bytes_per_token = kept_per_token,
          .tile_bytes_per_token = tile_per_token,
          .recomputed_flops_per_token = recomputed_per_token};
}

void expect_valid_plan(const TilePlan& plan, std::int64_t tokens) {
  testing::expect_valid_plan({.unit = "the unit of this test", .problem = problem_of(tokens)}, plan);
}

TEST(Untiled, IsOneKeptTile) {
  for (const std::int64_t tokens : lengths) {
    const TilePlan plan = Untiled{}.plan(problem_of(tokens));
    expect_valid_plan(plan, tokens);
    EXPECT_EQ(plan.tiles, (std::vector<Tile>{{.begin = 0, .end = tokens, .kept = true}}));
  }
}

TEST(StaticTiles, FewerTilesThanRequestedIfTokensDoNotDivide) {
  const TilePlan plan = StaticTiles<4>{}.plan({.tokens = 5, .tile_bytes_per_token = 10});

  EXPECT_EQ(plan.tiles, (std::vector<Tile>{{0, 2}, {2, 4}, {4, 5}}));
  EXPECT_EQ(plan.peak_bytes(), 20);
}

TEST(StaticTiles, EqualTilesIfTokensDivide) {
  EXPECT_EQ(StaticTiles<3>{}.plan(problem_of(9)).tiles, (std::vector<Tile>{{0, 3}, {3, 6}, {6, 9}}));
}

TEST(StaticTiles, NeverMoreTilesThanTokens) {
  EXPECT_EQ(StaticTiles<8>{}.plan(problem_of(3)).tiles, (std::vector<Tile>{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(StaticTiles<8>{}.plan(problem_of(1)), Untiled{}.plan(problem_of(1)));
}

TEST(TokensPerTile, OnlyTheLastTileIsShorter) {
  EXPECT_EQ(TokensPerTile<3>{}.plan(problem_of(7)).tiles, (std::vector<Tile>{{0, 3}, {3, 6}, {6, 7}}));
}

TEST(TokensPerTile, AShorterSequenceIsOneTileThatIsNotRecomputed) {
  EXPECT_EQ(TokensPerTile<4096>{}.plan(problem_of(5)), Untiled{}.plan(problem_of(5)));
}

TEST(TokensPerTile, AShorterSequenceIsRecomputedIfUnitsShareItsWorkspace) {
  Problem problem = problem_of(5);
  problem.repeats = 2;
  const TilePlan plan = TokensPerTile<4096>{}.plan(problem);
  EXPECT_EQ(plan.tiles, (std::vector<Tile>{{0, 5}}));
  EXPECT_EQ(plan.peak_bytes(), 5 * tile_per_token);
  EXPECT_EQ(Untiled{}.plan(problem).peak_bytes(), 2 * 5 * kept_per_token + 5 * (tile_per_token - kept_per_token));
}

TEST(TokensPerTile, OneMoreTokenAddsATileAndShortensAll) {
  EXPECT_EQ(TokensPerTile<4096>{}.plan(problem_of(4096)).tiles.size(), 1u);
  EXPECT_EQ(TokensPerTile<4096>{}.plan(problem_of(4097)).tiles, (std::vector<Tile>{{0, 2049}, {2049, 4097}}));
}

TEST(EveryPolicy, ReportsWhetherItHasABudget) {
  EXPECT_TRUE(states_budget(Budget{100}) && states_budget(StaticBudget<100>{}));
  EXPECT_TRUE(states_budget(RunTimeTiling::budget(100)) && states_budget(RunTimeTiling::budget_of_memory()));
  EXPECT_FALSE(states_budget(Untiled{}) || states_budget(StaticTiles<4>{}) || states_budget(TokensPerTile<4>{}));
  EXPECT_FALSE(states_budget(RunTimeTiling()) || states_budget(RunTimeTiling::tiles(4)) ||
               states_budget(RunTimeTiling::tokens(4)));
}

TEST(EveryPolicy, HasTheNumberOfTilesThatItsArgumentImplies) {
  for (const std::int64_t tokens : lengths) {
    for (const std::int64_t number : numbers) {
      SCOPED_TRACE(std::to_string(tokens) + " tokens, " + std::to_string(number));
      const TilePlan counted = RunTimeTiling::tiles(number).plan(problem_of(tokens));
      EXPECT_LE(static_cast<std::int64_t>(counted.tiles.size()), number);
      if (counted.tiles.size() > 1) {
        EXPECT_EQ(counted.kept_bytes, 0);
      }

      const TilePlan fixed = RunTimeTiling::tokens(number).plan(problem_of(tokens));
      const std::int64_t longest = std::max(number, problem_of(tokens).fewest_tile_tokens());
      EXPECT_EQ(static_cast<std::int64_t>(fixed.tiles.size()), ceil_divide(tokens, longest));
      EXPECT_LE(fixed.longest_tile(), longest);
      if (fixed.tiles.size() > 1) {
        EXPECT_EQ(fixed.kept_bytes, 0);
      }
    }
  }
}

TEST(EveryPolicy, NeverMakesTilesShorterThanTheMinimum) {
  for (const std::int64_t tokens : {1, 63, 64, 65, 1000, 4096, 4097, 131072}) {
    const Problem problem = problem_of(tokens);
    for (const RunTimeTiling& policy :
         {RunTimeTiling::tiles(tokens), RunTimeTiling::tokens(1), RunTimeTiling::budget(smallest_budget(problem))}) {
      const TilePlan plan = policy.plan(problem);
      expect_valid_plan(plan, tokens);
      EXPECT_LE(plan.longest_tile(), 64) << plan;
    }
  }
}

TEST(EveryPolicy, AcceptsTheLargestInteger) {
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  expect_valid_plan(RunTimeTiling::tokens(largest).plan(problem_of(5)), 5);
  expect_valid_plan(RunTimeTiling::tiles(largest).plan(problem_of(5)), 5);
}

TEST(TilePlan, PrintsItsTiles) {
  std::ostringstream text;
  text << StaticTiles<2>{}.plan(problem_of(5)) << " | " << Untiled{}.plan(problem_of(5)) << " | "
       << with_costs({.tokens = 4, .columns = 9, .tile_bytes_per_token_column = 2}, {{0, 4}}, 3);
  EXPECT_EQ(text.str(),
            "2 tiles of up to 3 tokens, 0 kept; 30 bytes; 15 FLOPs recomputed | 1 tile of 5 tokens, 1 kept; 50 bytes; "
            "0 FLOPs recomputed | 1 tile of 4 tokens in blocks of 3 columns, 0 kept; 24 bytes; 0 FLOPs recomputed");
}

TEST(RunTimeTiling, PlansAsTheStoredPolicy) {
  for (const std::int64_t tokens : lengths) {
    EXPECT_EQ(RunTimeTiling().plan(problem_of(tokens)), Untiled{}.plan(problem_of(tokens)));
    EXPECT_EQ(RunTimeTiling(Untiled{}).plan(problem_of(tokens)), Untiled{}.plan(problem_of(tokens)));
    EXPECT_EQ(RunTimeTiling::tiles(4).plan(problem_of(tokens)), StaticTiles<4>{}.plan(problem_of(tokens)));
    EXPECT_EQ(RunTimeTiling::tokens(4).plan(problem_of(tokens)), TokensPerTile<4>{}.plan(problem_of(tokens)));
  }
}

TEST(RunTimeTiling, PlansAsTheStoredBudget) {
  EXPECT_EQ(RunTimeTiling::budget(60).plan(problem_of(9)), Budget{60}.plan(problem_of(9)));
  EXPECT_EQ(RunTimeTiling::budget(60).plan(problem_of(9)), StaticBudget<60>{}.plan(problem_of(9)));
}

TEST(RunTimeTiling, IsEqualOnlyToItself) {
  EXPECT_EQ(RunTimeTiling(), RunTimeTiling(Untiled{}));
  EXPECT_EQ(RunTimeTiling::tiles(4), RunTimeTiling::tiles(4));
  EXPECT_NE(RunTimeTiling::tiles(4), RunTimeTiling::tiles(5));
  EXPECT_NE(RunTimeTiling::tiles(4), RunTimeTiling::tokens(4));
}

TEST(RunTimeTiling, RefusesAndReportsNumbersBelowOne) {
  EXPECT_THROW(RunTimeTiling::tiles(-3), InputError);
  EXPECT_THROW(RunTimeTiling::tokens(0), InputError);
  EXPECT_THROW(RunTimeTiling::budget(0), InputError);
  EXPECT_INPUT_ERROR(RunTimeTiling::tiles(0), "tiles:0");
}

}  // namespace
}  // namespace fsdp::tiling

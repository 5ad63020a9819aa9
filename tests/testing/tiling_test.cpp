// SPDX-License-Identifier: Apache-2.0
// The tiling suite runs the built-in policies and finds the flaw of each flawed one.
#include <tessera/fsdp/testing/tiling.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/tiling/policies.hpp>

#include "failures.hpp"

namespace fsdp::testing {

/// Changes the plan of Untiled.
struct Spoils {
  void (*spoil)(const tiling::Problem& problem, tiling::TilePlan& plan);
  tiling::TilePlan plan(const tiling::Problem& problem) const {
    tiling::TilePlan plan = tiling::Untiled{}.plan(problem);
    spoil(problem, plan);
    return plan;
  }
};

/// Cuts sequences of more than 3 tokens into these tiles.
struct HasTiles {
  std::vector<tiling::Tile> (*tiles)(std::int64_t tokens);
  tiling::TilePlan plan(const tiling::Problem& problem) const {
    tiling::TilePlan plan = tiling::Untiled{}.plan(problem);
    if (problem.tokens > 3) plan.tiles = tiles(problem.tokens);
    return plan;
  }
};

using Tiles = std::vector<tiling::Tile>;
const HasTiles leaves_a_gap{[](std::int64_t tokens) { return Tiles{{0, 2, true}, {3, tokens, true}}; }};
const HasTiles leaves_out_the_end{[](std::int64_t tokens) { return Tiles{{0, tokens - 1, true}}; }};
const HasTiles goes_past_the_end{[](std::int64_t tokens) { return Tiles{{0, tokens + 1, true}}; }};
const HasTiles overlaps_tiles{[](std::int64_t tokens) { return Tiles{{0, 3, true}, {2, tokens, true}}; }};
const Spoils has_no_tile{[](const tiling::Problem&, tiling::TilePlan& plan) { plan = {}; }};
const Spoils has_an_empty_tile{[](const tiling::Problem& problem, tiling::TilePlan& plan) {
  plan.tiles.push_back({problem.tokens, problem.tokens, true});
}};
const Spoils promises_half_its_workspace{[](const tiling::Problem&, tiling::TilePlan& plan) { plan.tile_bytes /= 2; }};
const Spoils has_blocks_of_less_than_nothing{
    [](const tiling::Problem&, tiling::TilePlan& plan) { plan.columns_per_block = -64; }};

/// Every plan has longer tiles than the previous one.
struct RemembersHowOftenItWasAsked {
  tiling::TilePlan plan(const tiling::Problem& problem) const { return tiling::cut(problem, ++asked); }
  mutable std::int64_t asked = 0;
};

/// A copy has a different number than the original.
struct ForgetsItsNumberWhenCopied {
  explicit ForgetsItsNumberWhenCopied(std::int64_t number) : tokens(number) {}
  ForgetsItsNumberWhenCopied(const ForgetsItsNumberWhenCopied&) {}
  ForgetsItsNumberWhenCopied& operator=(const ForgetsItsNumberWhenCopied&) { return *this; }
  tiling::TilePlan plan(const tiling::Problem& problem) const { return tiling::cut(problem, tokens); }
  std::int64_t tokens = 5000;
};

struct MakesTilesOfOneToken {
  tiling::TilePlan plan(const tiling::Problem& problem) const {
    std::vector<tiling::Tile> tiles;
    tiling::append_tiles(tiles, 0, problem.tokens, 1, false);
    return tiling::with_costs(problem, std::move(tiles));
  }
};

struct KeepsTilesThatItBlocks {
  tiling::TilePlan plan(const tiling::Problem& problem) const {
    std::vector<tiling::Tile> tiles;
    tiling::append_tiles(tiles, 0, problem.tokens, problem.tokens, true);
    return tiling::with_costs(problem, std::move(tiles), 64);
  }
};

/// Uses blocks of columns, which need memory for their sums, even if they save nothing.
struct TakesMoreThanUntiled {
  tiling::TilePlan plan(const tiling::Problem& problem) const {
    std::vector<tiling::Tile> tiles;
    tiling::append_tiles(tiles, 0, problem.tokens, problem.tokens, false);
    return tiling::with_costs(problem, std::move(tiles), std::max<std::int64_t>(problem.columns - 1, 0));
  }
};

struct RefusesEverything {
  tiling::TilePlan plan(const tiling::Problem&) const { throw InputError("no"); }
};

namespace {

struct AllOfRunTime {
  static std::vector<tiling::RunTimeTiling> policies() {
    std::vector<tiling::RunTimeTiling> all{tiling::RunTimeTiling()};
    for (const std::int64_t number : {1, 2, 3, 4, 5, 8, 999, 1000, 1001, 4096, 4097, 5000}) {
      all.push_back(tiling::RunTimeTiling::tiles(number));
      all.push_back(tiling::RunTimeTiling::tokens(number));
    }
    for (const std::int64_t bytes : {1000, 100'000, 10'000'000, 1'000'000'000})
      all.push_back(tiling::RunTimeTiling::budget(bytes));
    return all;
  }
};
using TilingPolicies = ::testing::Types<tiling::Untiled, tiling::StaticTiles<4>, tiling::TokensPerTile<100>,
                                        tiling::StaticBudget<50'000>, AllOfRunTime>;
INSTANTIATE_TYPED_TEST_SUITE_P(Policies, TilingSuite, TilingPolicies);

std::vector<std::string> covers(const auto& policy) {
  return failures_of([&] { check_tiling_covers(policy); });
}

TEST(TilingKit, FindsTokensWithoutATile) {
  expect_sentence(covers(leaves_a_gap), "cover all tokens", "5 tokens of a unit",
                  "tile 1 of 2, [3, 5), leaves out tokens [2, 3)");
  expect_sentence(covers(leaves_out_the_end), "cover all tokens", "5 tokens of a unit", "the last tile ends at 4");
  expect_sentence(covers(has_no_tile), "cover all tokens", "1 token of a unit", "the last tile ends at 0");
}

TEST(TilingKit, FindsTilesPastTheLastToken) {
  expect_sentence(covers(goes_past_the_end), "cover all tokens", "5 tokens of a unit", "the last tile ends at 6");
}

TEST(TilingKit, FindsTokensInTwoTiles) {
  expect_sentence(covers(overlaps_tiles), "each once and in order", "5 tokens of a unit",
                  "tile 1 of 2, [2, 5), overlaps the tiles before it, which end at 3");
}

TEST(TilingKit, FindsEmptyTiles) {
  expect_sentence(covers(has_an_empty_tile), "no tile is empty", "1 token of", "tile 1 of 2, [1, 1), has no token");
  expect_failure([] { check_tiling_of_nothing(has_an_empty_tile); }, "without tiles", "0 tokens", "1 tile of 0 tokens");
}

TEST(TilingKit, FindsPlansThatAreNotAPureFunctionOfTheProblem) {
  expect_failure([] { check_tiling_is_pure(RemembersHowOftenItWasAsked{}); }, "pure function", "131072 tokens",
                 "then, from the same policy, ");
  expect_failure([] { check_tiling_is_pure(ForgetsItsNumberWhenCopied(300)); }, "a copy of it", "tokens of",
                 "then, from a copy, ");
}

TEST(TilingKit, FindsPlansWithWrongMemoryCosts) {
  expect_failure([] { check_tiling_prices(promises_half_its_workspace); }, "those of its tiles", "1 token of a unit",
                 "tile_bytes, the workspace of the largest tile, is 1 instead of 3");
}

TEST(TilingKit, FindsPlansBeyondTheLimits) {
  const auto limits = [](const auto& policy) { return failures_of([&] { check_tiling_limits(policy); }); };
  expect_sentence(limits(MakesTilesOfOneToken{}), "at most 64 tiles have less than 64 tokens", "65 tokens of a unit",
                  "65 tiles of up to 1 tokens");
  expect_sentence(limits(KeepsTilesThatItBlocks{}), "keeps no tile", "1 token of an MLP",
                  "blocks of 64 columns, and 1 kept tokens");
  expect_sentence(limits(has_blocks_of_less_than_nothing), "less than the columns of the unit", "1 token of a unit",
                  "-64 of 0 columns");
}

TEST(TilingKit, FindsPlansThatNeedMoreMemoryThanUntiled) {
  expect_failure([] { check_tiling_saves(TakesMoreThanUntiled{}); }, "more bytes than tiling::Untiled",
                 "1 token of an MLP", "1530 bytes");
}

/// These plans are never executed: the table of plans refuses them.
TEST(TilingKit, FindsPlansThatCannotBeExecuted) {
  const auto found = [](const auto& policy, std::string_view what) {
    expect_failure([&] { check_tiling_gradients(policy); }, "gradients of the untiled one", "1 x 7 tokens, hidden 12",
                   what);
  };
  found(leaves_a_gap, "an error: tiling: a policy's plan for 7 tokens has tile 1 of 2, [3, 7), which leaves out");
  found(overlaps_tiles, "overlaps the tiles before it");
  found(goes_past_the_end, "ends behind the last token");
  EXPECT_EQ(failures_of([] { check_tiling_gradients(RefusesEverything{}); }), std::vector<std::string>{});
}

struct TwoPolicies {
  static std::vector<tiling::RunTimeTiling> policies() {
    return {tiling::RunTimeTiling::tiles(2), tiling::RunTimeTiling::tokens(3)};
  }
};

TEST(TilingKit, ChecksEveryPolicyOfAList) {
  static std::vector<tiling::RunTimeTiling> checked;
  checked.clear();
  TilingSuite<TwoPolicies>::each([](const tiling::RunTimeTiling& policy) { checked.push_back(policy); });
  EXPECT_TRUE(checked == TwoPolicies::policies());
}

TEST(TilingKit, FindsAPolicyThatRefusesEveryProblem) {
  expect_sentence(covers(RefusesEverything{}), "a policy makes plans", "problems", "an InputError for each of them");
}

}  // namespace
}  // namespace fsdp::testing

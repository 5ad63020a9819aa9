// SPDX-License-Identifier: Apache-2.0
// The tiling suite runs the built-in policies and finds the flaw of each flawed one.
#include <tessera/fsdp/testing/tiling.hpp>

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "failures.hpp"
#include "wrong_tilings.hpp"

namespace fsdp::testing {
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

template <class Wrong>
std::vector<std::string> covers() {
  return failures_of([] { check_tiling_covers(Wrong{}); });
}

TEST(TilingKit, FindsTokensWithoutATile) {
  expect_sentence(covers<LeavesAGap>(), "cover all tokens", "5 tokens of a unit",
                  "tile 1 of 2, [3, 5), leaves out tokens [2, 3)");
  expect_sentence(covers<LeavesOutTheEnd>(), "cover all tokens", "5 tokens of a unit", "the last tile ends at 4");
  expect_sentence(covers<HasNoTile>(), "cover all tokens", "1 token of a unit", "the last tile ends at 0");
}

TEST(TilingKit, FindsTilesPastTheLastToken) {
  expect_sentence(covers<GoesPastTheEnd>(), "cover all tokens", "5 tokens of a unit", "the last tile ends at 6");
}

TEST(TilingKit, FindsTokensInTwoTiles) {
  expect_sentence(covers<OverlapsTiles>(), "each once and in order", "5 tokens of a unit",
                  "tile 1 of 2, [2, 5), overlaps the tiles before it, which end at 3");
}

TEST(TilingKit, FindsEmptyTiles) {
  expect_sentence(covers<HasAnEmptyTile>(), "no tile is empty", "1 token of", "tile 1 of 2, [1, 1), has no token");
  expect_sentence(failures_of([] { check_tiling_of_nothing(HasAnEmptyTile{}); }), "without tiles", "0 tokens",
                  "1 tile of 0 tokens");
}

TEST(TilingKit, FindsPlansThatAreNotAPureFunctionOfTheProblem) {
  expect_sentence(failures_of([] { check_tiling_is_pure(RemembersHowOftenItWasAsked{}); }), "pure function",
                  "131072 tokens", "then, from the same policy, ");
  expect_sentence(failures_of([] { check_tiling_is_pure(ForgetsItsNumberWhenCopied(300)); }), "a copy of it",
                  "tokens of", "then, from a copy, ");
}

TEST(TilingKit, FindsPlansWithWrongMemoryCosts) {
  expect_sentence(failures_of([] { check_tiling_prices(PromisesTooLittle{}); }), "those of its tiles",
                  "1 token of a unit", "tile_bytes, the workspace of the largest tile, is 1 instead of 3");
}

TEST(TilingKit, FindsPlansBeyondTheLimits) {
  const auto limits = [](const auto& policy) { return failures_of([&] { check_tiling_limits(policy); }); };
  expect_sentence(limits(MakesTilesOfOneToken{}), "at most 64 tiles have less than 64 tokens", "65 tokens of a unit",
                  "65 tiles of up to 1 tokens");
  expect_sentence(limits(KeepsTilesThatItBlocks{}), "keeps no tile", "1 token of an MLP",
                  "blocks of 64 columns, and 1 kept tokens");
  expect_sentence(limits(HasBlocksOfLessThanNothing{}), "less than the columns of the unit", "1 token of a unit",
                  "-64 of 0 columns");
}

TEST(TilingKit, FindsPlansThatNeedMoreMemoryThanUntiled) {
  expect_sentence(failures_of([] { check_tiling_saves(TakesMoreThanUntiled{}); }), "more bytes than tiling::Untiled",
                  "1 token of an MLP", "1530 bytes");
}

/// These plans are never executed: the table of plans refuses them.
TEST(TilingKit, FindsPlansThatCannotBeExecuted) {
  const auto found = [](const auto& policy, std::string_view what) {
    expect_sentence(failures_of([&] { check_tiling_gradients(policy); }), "gradients of the untiled one",
                    "1 x 7 tokens, hidden 12", what);
  };
  found(LeavesAGap{}, "an error: tiling: a policy's plan for 7 tokens has tile 1 of 2, [3, 7), which leaves out");
  found(OverlapsTiles{}, "overlaps the tiles before it");
  found(GoesPastTheEnd{}, "ends behind the last token");
  EXPECT_EQ(failures_of([] { check_tiling_gradients(RefusesEverything{}); }), std::vector<std::string>{});
}

TEST(TilingKit, FindsAPolicyThatRefusesEveryProblem) {
  expect_sentence(covers<RefusesEverything>(), "a policy makes plans", "problems", "an InputError for each of them");
}

}  // namespace
}  // namespace fsdp::testing

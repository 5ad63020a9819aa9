// SPDX-License-Identifier: Apache-2.0
// A policy's plan is validated when it is made; each invalid plan is refused with a message that states the error.
#include <tessera/tiling/problem.hpp>

#include <string_view>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/tiling/policies.hpp>

#include <support/temporary_folder.hpp>

namespace fsdp::tiling {
namespace {

constexpr Problem five{.tokens = 5, .columns = 8, .kept_bytes_per_token = 3, .tile_bytes_per_token = 10};

void expect_refused(const TilePlan& plan, std::string_view found, const Problem& problem = five) {
  SCOPED_TRACE(found);
  EXPECT_INPUT_ERROR(checked(problem, plan), found);
}

TEST(CheckedPlan, RefusesTilesThatDoNotCoverTheTokensOnceAndInOrder) {
  expect_refused({},
                 "a policy's plan for 5 tokens has 0 tiles, which leave out tokens [0, 5); the tiles of a plan must "
                 "cover all tokens, each once and in order, and none may be empty");
  expect_refused({.tiles = {{0, 2}, {3, 5}}}, "has tile 1 of 2, [3, 5), which leaves out tokens [2, 3); the tiles");
  expect_refused({.tiles = {{1, 5}}}, "has tile 0 of 1, [1, 5), which leaves out tokens [0, 1)");
  expect_refused({.tiles = {{0, 4}}}, "has 1 tiles, which leave out tokens [4, 5)");
  expect_refused({.tiles = {{0, 3}, {2, 5}}}, "[2, 5), which overlaps the tiles before it, which end at 3");
  expect_refused({.tiles = {{0, 5}, {0, 5}}}, "[0, 5), which overlaps the tiles before it, which end at 5");
  expect_refused({.tiles = {{3, 5}, {0, 3}}}, "[3, 5), which leaves out tokens [0, 3)");
  expect_refused({.tiles = {{-1, 5}}}, "[-1, 5), which overlaps the tiles before it, which end at 0");
  expect_refused({.tiles = {{0, 5}, {5, 6}}}, "has tile 1 of 2, [5, 6), which ends behind the last token");
  expect_refused({.tiles = {{0, 6}}}, "[0, 6), which ends behind the last token");
  expect_refused({.tiles = {{0, 2}, {2, 2}, {2, 5}}}, "has tile 1 of 3, [2, 2), which has no token");
  expect_refused({.tiles = {{0, 5}, {5, 3}}}, "[5, 3), which has no token");
  expect_refused({.tiles = {{0, 1}}}, "for 0 tokens has tile 0 of 1, [0, 1), which ends behind the last token", {});
}

TEST(CheckedPlan, RefusesInvalidBlocksOfColumns) {
  for (const std::int64_t block : {-1, 8, 9})
    expect_refused({.tiles = {{0, 5}}, .columns_per_block = block}, message("has blocks of ", block, " of 8 columns"));
  expect_refused({.tiles = {{0, 2, true}, {2, 5}}, .columns_per_block = 4},
                 "keeps 2 of them and has blocks of 4 columns; kept activations have all columns");
}

TEST(CheckedPlan, RefusesNegativeNumbersFromPolicyAndModule) {
  expect_refused({.tiles = {{0, 5}}, .kept_bytes = -1},
                 "states kept_bytes = -1; let tiling::with_costs make the costs");
  expect_refused({.tiles = {{0, 5}}, .tile_bytes = -64}, "states tile_bytes = -64");
  expect_refused({.tiles = {{0, 5}}, .repeats = -1}, "states repeats = -1");
  expect_refused({.tiles = {{0, 5}}, .recomputed_flops = -7}, "states recomputed_flops = -7");
  expect_refused({.tiles = {{0, 5}}}, "a module's problem states kept_bytes_per_token = -3; the sizes of a",
                 {.tokens = 5, .kept_bytes_per_token = -3});
  expect_refused({.tiles = {{0, 5}}}, "a module's problem states repeats = 0", {.tokens = 5, .repeats = 0});
}

/// The costs of a plan are computed from its tiles, whether the policy states them or not.
TEST(CheckedPlan, SumsTheCostsOfItsTiles) {
  const TilePlan plan = StaticTiles<2>{}.plan({.tokens = 1000, .tile_bytes_per_token = 10, .repeats = 3});
  EXPECT_EQ(checked({.tokens = 1000, .tile_bytes_per_token = 10, .repeats = 3}, {.tiles = plan.tiles}), plan);
  const TilePlan kept = checked(five, {.tiles = {{0, 2, true}, {2, 5}}, .tile_bytes = 1});
  EXPECT_EQ(kept.kept_bytes, 2 * 3);
  EXPECT_EQ(kept.tile_bytes, 3 * 10);
  EXPECT_EQ(checked({}, {}), TilePlan{});
}

}  // namespace
}  // namespace fsdp::tiling

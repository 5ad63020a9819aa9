// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tiling policies with one flaw each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/tiling/policies.hpp>

namespace fsdp::testing {

/// Token 2 of every sequence of more than 3 tokens is in no tile.
struct LeavesAGap {
  tiling::TilePlan plan(const tiling::Problem& problem) const {
    tiling::TilePlan plan = tiling::Untiled{}.plan(problem);
    if (problem.tokens > 3) plan.tiles = {{0, 2, true}, {3, problem.tokens, true}};
    return plan;
  }
};

struct LeavesOutTheEnd {
  tiling::TilePlan plan(const tiling::Problem& problem) const {
    tiling::TilePlan plan = tiling::Untiled{}.plan(problem);
    if (problem.tokens > 3) plan.tiles = {{0, problem.tokens - 1, true}};
    return plan;
  }
};

struct GoesPastTheEnd {
  tiling::TilePlan plan(const tiling::Problem& problem) const {
    tiling::TilePlan plan = tiling::Untiled{}.plan(problem);
    if (problem.tokens > 3) plan.tiles = {{0, problem.tokens + 1, true}};
    return plan;
  }
};

struct HasNoTile {
  tiling::TilePlan plan(const tiling::Problem&) const { return {}; }
};

struct OverlapsTiles {
  tiling::TilePlan plan(const tiling::Problem& problem) const {
    tiling::TilePlan plan = tiling::Untiled{}.plan(problem);
    if (problem.tokens > 3) plan.tiles = {{0, 3, true}, {2, problem.tokens, true}};
    return plan;
  }
};

struct HasAnEmptyTile {
  tiling::TilePlan plan(const tiling::Problem& problem) const {
    tiling::TilePlan plan = tiling::Untiled{}.plan(problem);
    plan.tiles.push_back({problem.tokens, problem.tokens, true});
    return plan;
  }
};

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

/// The planned workspace is only that of half a tile.
struct PromisesTooLittle {
  tiling::TilePlan plan(const tiling::Problem& problem) const {
    tiling::TilePlan plan = tiling::Untiled{}.plan(problem);
    plan.tile_bytes /= 2;
    return plan;
  }
};

struct MakesTilesOfOneToken {
  tiling::TilePlan plan(const tiling::Problem& problem) const {
    std::vector<tiling::Tile> tiles;
    tiling::append_tiles(tiles, 0, problem.tokens, 1, false);
    return tiling::priced(problem, std::move(tiles));
  }
};

struct KeepsTilesThatItBlocks {
  tiling::TilePlan plan(const tiling::Problem& problem) const {
    std::vector<tiling::Tile> tiles;
    tiling::append_tiles(tiles, 0, problem.tokens, problem.tokens, true);
    return tiling::priced(problem, std::move(tiles), 64);
  }
};

struct HasBlocksOfLessThanNothing {
  tiling::TilePlan plan(const tiling::Problem& problem) const {
    tiling::TilePlan plan = tiling::Untiled{}.plan(problem);
    plan.columns_per_block = -64;
    return plan;
  }
};

/// Uses blocks of columns, which need memory for their sums, even if they save nothing.
struct TakesMoreThanUntiled {
  tiling::TilePlan plan(const tiling::Problem& problem) const {
    std::vector<tiling::Tile> tiles;
    tiling::append_tiles(tiles, 0, problem.tokens, problem.tokens, false);
    return tiling::priced(problem, std::move(tiles), std::max<std::int64_t>(problem.columns - 1, 0));
  }
};

struct RefusesEverything {
  tiling::TilePlan plan(const tiling::Problem&) const { throw InputError("no"); }
};

}  // namespace fsdp::testing

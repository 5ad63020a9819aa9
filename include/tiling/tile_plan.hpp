// SPDX-License-Identifier: Apache-2.0
/// @file
/// A sequence of tokens cut into tiles: borders, which tiles keep their activations, and the cost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iosfwd>
#include <vector>

#include <tessera/fsdp/core/lists.hpp>

namespace fsdp::tiling {

/// Tokens [begin, end) of a sequence. A kept tile's activations stay in memory from forward to backward; other tiles
/// are recomputed.
struct Tile {
  std::int64_t begin = 0, end = 0;
  bool kept = false;

  constexpr std::int64_t tokens() const { return end - begin; }
  friend constexpr bool operator==(const Tile&, const Tile&) = default;
};

/// A policy's decision. The tiles cover the sequence once, in order; forward and backward use the same plan.
struct TilePlan {
  std::vector<Tile> tiles;             ///< the tiles in order
  std::int64_t columns_per_block = 0;  ///< number of columns of a tile computed at a time; 0: all at once
  std::int64_t kept_bytes = 0;         ///< bytes of activations of one unit's kept tiles
  std::int64_t tile_bytes = 0;         ///< bytes of workspace of the largest tile, shared by all tiles
  std::int64_t repeats = 1;            ///< number of units whose kept tiles are alive at the same time
  std::int64_t recomputed_flops = 0;   ///< FLOPs recomputed in one unit's backward

  /// Returns the peak bytes of all units: kept activations plus one workspace.
  constexpr std::int64_t peak_bytes() const { return repeats * kept_bytes + tile_bytes; }
  constexpr std::int64_t kept_tokens() const {
    std::int64_t tokens = 0;
    for (const Tile& tile : tiles) tokens += tile.kept ? tile.tokens() : 0;
    return tokens;
  }
  constexpr std::int64_t longest_tile() const {
    std::int64_t tokens = 0;
    for (const Tile& tile : tiles) tokens = std::max(tokens, tile.tokens());
    return tokens;
  }
  friend constexpr bool operator==(const TilePlan&, const TilePlan&) = default;
};

/// Prints "4 tiles of up to 2048 tokens, 1 kept; 7340032 bytes; 123456 FLOPs recomputed".
std::ostream& operator<<(std::ostream& out, const TilePlan& plan);

}  // namespace fsdp::tiling

// Compiled into the library.
FSDP_LIST(fsdp::tiling::Tile)

// SPDX-License-Identifier: Apache-2.0
/// @file
/// A sequence of tokens cut into tiles: borders, and which tiles keep their activations.
#pragma once

#include <cstdint>
#include <vector>

namespace fsdp::tiling {

/// Tokens [begin, end) of a sequence. A kept tile's activations stay from forward to backward; the others are
/// recomputed.
struct Tile {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool kept = false;

  constexpr std::int64_t tokens() const { return end - begin; }
  friend constexpr bool operator==(const Tile&, const Tile&) = default;
};

/// What a policy decided. The tiles cover the sequence once, in order; forward and backward use the same plan.
struct TilePlan {
  std::vector<Tile> tiles;
  std::int64_t kept_bytes = 0;  ///< activations of kept tiles
  std::int64_t tile_bytes = 0;  ///< workspace of the largest tile, shared by all

  constexpr std::int64_t peak_bytes() const { return kept_bytes + tile_bytes; }
};

}  // namespace fsdp::tiling

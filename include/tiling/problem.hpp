// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a tiled unit tells a tiling policy about itself, and what a cut of it costs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fsdp/core/checked.hpp>
#include <tiling/tile_plan.hpp>

namespace fsdp::tiling {

/// Sizes that a policy may look at. Bytes are exact where every row of the unit's tensors fills whole cache lines;
/// elsewhere the arena rounds each tensor up.
struct Problem {
  std::int64_t tokens = 0;
  std::int64_t columns = 0;               ///< along which a tile may be cut as well: I of an MLP, V of a head; 0: none
  std::int64_t kept_bytes_per_token = 0;  ///< what backward needs if a token is not recomputed
  std::int64_t tile_bytes_per_token = 0;  ///< workspace while a token's tile is computed, whatever its columns
  std::int64_t tile_bytes_per_token_column = 0;  ///< workspace for every column that is computed at a time
  std::int64_t blocked_bytes_per_token = 0;      ///< workspace that only blocks of columns need: their sums
  std::int64_t recomputed_flops_per_token = 0;   ///< in backward, of a token that is not kept
  std::int64_t traffic_per_tile = 0;  ///< bytes of weights and gradients that every tile reads and writes again
  std::int64_t flops_per_byte = 40;   ///< what a byte of that traffic costs: a constant of the device
  std::int64_t repeats = 1;           ///< units like this whose kept tiles are alive together: a model's blocks

  /// The least length of a tile under every policy: at most 64 tiles have fewer than 64 tokens. Every tile adds to the
  /// weights' gradients in float, and the sum's error grows with the square root of their number: 4097 tokens in as
  /// many tiles are off by 1.3e-6 of a gradient, in 65 tiles by 0.25e-6; the untiled matmul's own error is 0.4e-6.
  constexpr std::int64_t fewest_tile_tokens() const { return std::min<std::int64_t>(ceil_divide(tokens, 64), 64); }

  /// Workspace of a tile that keeps nothing, `block` of its columns at a time.
  constexpr std::int64_t tile_bytes(std::int64_t tile_tokens, std::int64_t block) const {
    return tile_tokens * (tile_bytes_per_token + block * tile_bytes_per_token_column +
                          (block < columns ? blocked_bytes_per_token : 0));
  }
  /// The same, all columns at a time.
  constexpr std::int64_t tile_bytes(std::int64_t tile_tokens) const { return tile_bytes(tile_tokens, columns); }
  /// Workspace of a kept tile: the same, less what already lies where it is kept.
  constexpr std::int64_t kept_tile_bytes(std::int64_t tile_tokens) const {
    return tile_bytes(tile_tokens) - tile_tokens * kept_bytes_per_token;
  }
  friend constexpr bool operator==(const Problem&, const Problem&) = default;
};

/// The plan that consists of these tiles. Blocks of columns and kept tiles exclude each other.
constexpr TilePlan priced(const Problem& problem, std::vector<Tile> tiles, std::int64_t columns_per_block = 0) {
  TilePlan plan{.tiles = std::move(tiles),
                .columns_per_block = columns_per_block < problem.columns ? columns_per_block : 0,
                .repeats = problem.repeats};
  const std::int64_t block = plan.columns_per_block > 0 ? plan.columns_per_block : problem.columns;
  for (const Tile& tile : plan.tiles)
    plan.tile_bytes = std::max(
        plan.tile_bytes, tile.kept ? problem.kept_tile_bytes(tile.tokens()) : problem.tile_bytes(tile.tokens(), block));
  const std::int64_t kept = plan.kept_tokens();
  plan.kept_bytes = kept * problem.kept_bytes_per_token;
  plan.recomputed_flops = (problem.tokens - kept) * problem.recomputed_flops_per_token;
  return plan;
}

/// Appends tiles that cover [begin, end): as few as `tokens_per_tile` allows, cut every `tokens_per_tile` tokens.
constexpr void append_tiles(std::vector<Tile>& tiles, std::int64_t begin, std::int64_t end,
                            std::int64_t tokens_per_tile, bool kept) {
  while (begin < end) {
    const std::int64_t tokens = std::min(tokens_per_tile, end - begin);
    tiles.push_back({.begin = begin, .end = begin + tokens, .kept = kept});
    begin += tokens;
  }
}

}  // namespace fsdp::tiling

// SPDX-License-Identifier: Apache-2.0
/// @file
/// A tiled unit: its sizes, which tiling policies use, plans that cut its sequence into tiles, with their costs, and
/// the validation of the plans that policies return.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <iosfwd>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/lists.hpp>

namespace fsdp::tiling {

/// Tokens [begin, end) of a sequence. A kept tile's activations stay in memory from forward to backward; other tiles
/// are recomputed.
struct Tile {
  std::int64_t begin = 0;  ///< first token of the tile
  std::int64_t end = 0;    ///< one past the last token of the tile
  bool kept = false;       ///< whether the tile's activations stay in memory

  constexpr std::int64_t tokens() const { return end - begin; }  ///< length of the tile
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
  constexpr std::int64_t kept_tokens() const {  ///< number of tokens in kept tiles
    std::int64_t tokens = 0;
    for (const Tile& tile : tiles) tokens += tile.kept ? tile.tokens() : 0;
    return tokens;
  }
  constexpr std::int64_t longest_tile() const {  ///< length of the longest tile
    std::int64_t tokens = 0;
    for (const Tile& tile : tiles) tokens = std::max(tokens, tile.tokens());
    return tokens;
  }
  friend constexpr bool operator==(const TilePlan&, const TilePlan&) = default;
};

/// Prints "4 tiles of up to 2048 tokens, 1 kept; 7340032 bytes; 123456 FLOPs recomputed".
std::ostream& operator<<(std::ostream& out, const TilePlan& plan);

/// The sizes of a tiled unit. Numbers of bytes are exact if every row of the unit's tensors fills whole cache lines;
/// otherwise the arena rounds each tensor up.
struct Problem {
  std::int64_t tokens = 0;   ///< number of tokens to cut: those of a micro-batch
  std::int64_t columns = 0;  ///< columns by which a tile may also be cut: I of an MLP, V of a head; 0: none
  std::int64_t kept_bytes_per_token = 0;  ///< activations that backward needs per kept token
  std::int64_t tile_bytes_per_token = 0;  ///< workspace per token of the current tile, without the part per column
  std::int64_t tile_bytes_per_token_column = 0;  ///< workspace per token and column of the current block
  std::int64_t blocked_bytes_per_token = 0;      ///< additional workspace per token with blocks of columns: their sums
  std::int64_t recomputed_flops_per_token = 0;   ///< FLOPs in backward per token that is recomputed
  std::int64_t traffic_per_tile = 0;  ///< bytes of weights and gradients that every tile reads and writes again
  std::int64_t flops_per_byte = 40;   ///< cost of one byte of that traffic, in FLOPs: a constant of the device
  std::int64_t repeats = 1;  ///< number of such units whose kept tiles are alive at the same time: a model's blocks

  /// Returns the minimum tile length under every policy: 64 tokens; below 4096 tokens, the length that gives at most 64
  /// tiles. Every tile adds to the weights' gradients in float, and the error of the sum grows with the square root of
  /// the number of tiles: for 4097 tokens, the relative error of a gradient is 1.3e-6 with 4097 tiles and 0.25e-6 with
  /// 65 tiles; without tiling it is 0.4e-6.
  constexpr std::int64_t fewest_tile_tokens() const { return std::min<std::int64_t>(ceil_divide(tokens, 64), 64); }

  /// Returns the workspace of a recomputed tile that processes `block` columns at a time.
  constexpr std::int64_t tile_bytes(std::int64_t tile_tokens, std::int64_t block) const {
    return tile_tokens * (tile_bytes_per_token + block * tile_bytes_per_token_column +
                          (block < columns ? blocked_bytes_per_token : 0));
  }
  /// The same for a tile that processes all columns at once.
  constexpr std::int64_t tile_bytes(std::int64_t tile_tokens) const { return tile_bytes(tile_tokens, columns); }
  /// Returns the workspace of a kept tile, which does not include the activations that are written directly to kept
  /// memory.
  constexpr std::int64_t kept_tile_bytes(std::int64_t tile_tokens) const {
    return tile_bytes(tile_tokens) - tile_tokens * kept_bytes_per_token;
  }
  friend constexpr auto operator<=>(const Problem&, const Problem&) = default;
};

/// Returns the plan that consists of these tiles, with its costs. Blocks of columns and kept tiles exclude each other.
constexpr TilePlan with_costs(const Problem& problem, std::vector<Tile> tiles, std::int64_t columns_per_block = 0) {
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

/// The former name of `with_costs`, for this version.
constexpr TilePlan priced(const Problem& problem, std::vector<Tile> tiles, std::int64_t columns_per_block = 0) {
  return with_costs(problem, std::move(tiles), columns_per_block);
}

/// Appends tiles that cover [begin, end), each of `tokens_per_tile` tokens except a shorter last one.
constexpr void append_tiles(std::vector<Tile>& tiles, std::int64_t begin, std::int64_t end,
                            std::int64_t tokens_per_tile, bool kept) {
  while (begin < end) {
    const std::int64_t tokens = std::min(tokens_per_tile, end - begin);
    tiles.push_back({.begin = begin, .end = begin + tokens, .kept = kept});
    begin += tokens;
  }
}

/// Returns the plan that a policy made for `problem`, with the costs of its tiles as computed by `with_costs`, whatever
/// costs the policy states. Throws InputError, with one sentence, if
/// - the tiles do not cover [0, problem.tokens) once and in order, or one of them is empty;
/// - blocks of columns are not smaller than the problem's columns, or are combined with a kept tile;
/// - the plan states negative bytes, FLOPs or repeats;
/// - a size of the problem, which a module states, is negative.
TilePlan checked(const Problem& problem, TilePlan plan);

}  // namespace fsdp::tiling

// Compiled into the library.
FSDP_LIST(fsdp::tiling::Tile)

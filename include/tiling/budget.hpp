// SPDX-License-Identifier: Apache-2.0
/// @file
/// As little work as a number of bytes allows: tile length and kept share solved together.
///
/// Longer tiles need workspace in which tokens could be kept; shorter ones read the weights and add to their gradients
/// more often. The plan is the one with the least of both, recomputation and traffic, among all whose bytes fit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <fsdp/core/checked.hpp>
#include <fsdp/core/error.hpp>
#include <tiling/problem.hpp>

namespace fsdp::tiling {

/// A shorter tile leaves matmuls waiting for weights: blocks of columns are tried first.
inline constexpr std::int64_t shortest_tile = 256;
/// Tile lengths and blocks of columns are multiples of this many, where there are as many.
inline constexpr std::int64_t tile_step = 64;

namespace detail {

/// Numbers of tokens that describe a plan: recomputed ones come last.
struct Cut {
  std::int64_t kept = 0, kept_tile = 0, recomputed_tile = 0;
  std::int64_t block = 0;  ///< columns at a time; 0: all
  std::int64_t work = std::numeric_limits<std::int64_t>::max();
};

/// The least work where a recomputed tile is `tile` tokens. Kept tiles may be longer: their workspace is smaller.
constexpr Cut cut_at(const Problem& problem, std::int64_t bytes, std::int64_t tile) {
  const auto cut = [&](std::int64_t kept, std::int64_t kept_tile) {
    const std::int64_t recomputed = problem.tokens - kept;
    const std::int64_t tiles = ceil_divide(kept, kept_tile) + ceil_divide(recomputed, tile);
    return Cut{.kept = kept,
               .kept_tile = kept_tile,
               .recomputed_tile = tile,
               .work = recomputed * problem.recomputed_flops_per_token +
                       tiles * problem.traffic_per_tile * problem.flops_per_byte};
  };
  const std::int64_t kept_bytes = problem.repeats * problem.kept_bytes_per_token;
  const std::int64_t workspace = problem.tile_bytes(tile);
  Cut best;
  const auto consider = [&](const Cut& other) { best = other.work < best.work ? other : best; };
  if (kept_bytes > 0 && problem.tokens * kept_bytes + problem.kept_tile_bytes(tile) <= bytes)
    consider(cut(problem.tokens, tile));
  if (workspace > bytes) return best;
  consider(cut(0, tile));
  if (kept_bytes == 0) return best;
  const std::int64_t most = std::min((bytes - workspace) / kept_bytes, problem.tokens);
  const std::int64_t row = std::max<std::int64_t>(problem.kept_tile_bytes(1), 1);
  const std::int64_t kept_tile = std::max(std::min(workspace / row, problem.tokens), tile);
  consider(cut(most, kept_tile));
  consider(cut(most / kept_tile * kept_tile, kept_tile));  // the last kept tile may be too short to be worth it
  return best;
}

/// The shortest tiles of which there are as few as of the longest.
constexpr std::int64_t even(std::int64_t tokens, std::int64_t longest) {
  if (tokens == 0) return longest;
  return std::min(round_up(ceil_divide(tokens, ceil_divide(tokens, longest)), tile_step), longest);
}

constexpr TilePlan plan_of(const Problem& problem, const Cut& cut) {
  std::vector<Tile> tiles;
  append_tiles(tiles, 0, cut.kept, even(cut.kept, cut.kept_tile), true);
  append_tiles(tiles, cut.kept, problem.tokens, even(problem.tokens - cut.kept, cut.recomputed_tile), false);
  return priced(problem, std::move(tiles), cut.block);
}

/// Columns at a time of a tile of `tokens`, in as few and even blocks as fit; 0 where not even the smallest does.
constexpr std::int64_t block_within(const Problem& problem, std::int64_t bytes, std::int64_t tokens) {
  const std::int64_t fixed = problem.tile_bytes(tokens, 0);
  const std::int64_t column = tokens * problem.tile_bytes_per_token_column;
  if (column == 0 || bytes < fixed) return 0;
  const std::int64_t most = (bytes - fixed) / column / tile_step * tile_step;
  return most == 0 || problem.columns <= tile_step ? 0 : even(problem.columns, most);
}

/// Where even a shortest tile's workspace is too large: blocks of columns, and then fewer tokens.
constexpr Cut smallest_cut(const Problem& problem, std::int64_t bytes) {
  for (std::int64_t tokens = std::min(problem.tokens, shortest_tile); tokens >= problem.fewest_tile_tokens();
       --tokens) {
    if (problem.tile_bytes(tokens) <= bytes) return {.kept_tile = tokens, .recomputed_tile = tokens};
    if (const std::int64_t block = block_within(problem, bytes, tokens); block > 0)
      return {.kept_tile = tokens, .recomputed_tile = tokens, .block = block};
  }
  return {};
}

}  // namespace detail

/// The fewest bytes that any plan needs: a shortest tile, one block of columns.
constexpr std::int64_t smallest_budget(const Problem& problem) {
  const std::int64_t tokens = problem.fewest_tile_tokens();
  return std::min(problem.tile_bytes(tokens), problem.columns > tile_step ? problem.tile_bytes(tokens, tile_step)
                                                                          : std::numeric_limits<std::int64_t>::max());
}

/// Kept activations of all units that repeat, and one tile's workspace, in at most `bytes`.
constexpr TilePlan plan_within(const Problem& problem, std::int64_t bytes) {
  if (problem.tokens == 0) return priced(problem, {});
  if (const std::int64_t least = smallest_budget(problem); bytes < least) {
    const std::int64_t tokens = problem.fewest_tile_tokens();
    throw InputError(message("tiling: a budget of ", bytes, " bytes does not hold the shortest tile, of ", tokens,
                             tokens == 1 ? " token" : " tokens", "; give at least ", least, ", as in budget:", least));
  }
  detail::Cut best = detail::cut_at(problem, bytes, problem.tokens);
  for (std::int64_t tile = shortest_tile; tile < problem.tokens; tile += tile_step)
    if (const detail::Cut cut = detail::cut_at(problem, bytes, tile); cut.work < best.work) best = cut;
  return detail::plan_of(problem, best.recomputed_tile > 0 ? best : detail::smallest_cut(problem, bytes));
}

/// A budget that is known when the program runs.
struct Budget {
  std::int64_t bytes = 0;
  std::string text() const { return message("budget:", bytes); }
  constexpr TilePlan plan(const Problem& problem) const { return plan_within(problem, bytes); }
  friend constexpr bool operator==(const Budget&, const Budget&) = default;
};

/// A budget that a stack's type fixes.
template <std::int64_t Bytes>
struct StaticBudget {
  static_assert(Bytes > 0, "fsdp: StaticBudget<Bytes> needs at least one byte");
  static constexpr std::int64_t bytes = Bytes;
  static std::string text() { return message("budget:", Bytes); }
  constexpr TilePlan plan(const Problem& problem) const { return plan_within(problem, Bytes); }
};

}  // namespace fsdp::tiling

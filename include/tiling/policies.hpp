// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tiling policies: how to cut a sequence into tiles.
///
/// A policy is a pure function from a problem to a TilePlan. It does not own memory, and does not depend on the device
/// or communicator. Tiles may be longer than requested, since very short ones would lose precision
/// (Problem::fewest_tile_tokens). To add a policy, add a struct with `plan` here, its cases in
/// tests/tiling/policies_test.cpp and its name in src/program/cli/stack_choice.cpp.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // must be included before all others

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/tiling/problem.hpp>

namespace fsdp::tiling {

/// A tiling policy: `policy.plan(problem)` covers [0, problem.tokens) once and in order, never with an empty tile;
/// other plans are rejected (tessera/tiling/problem.hpp). The concept checks `plan` first, so that it can be used with
/// a class that is constructible from a policy.
template <class Policy>
concept Tiling = requires(const Policy policy, const Problem& problem) {
  { policy.plan(problem) } -> std::same_as<TilePlan>;
}
&&std::copyable<Policy>;

/// Explains in static_assert messages which requirements of a tiling policy a type does not meet. Call it where the
/// type is first used.
template <class Policy>
consteval bool check_tiling() {
  static_assert(std::copyable<Policy>, "fsdp: a tiling policy is copied to every rank; give it a copy constructor");
  static_assert(
      requires(const Policy policy, const Problem& problem) {
        { policy.plan(problem) } -> std::same_as<TilePlan>;
      },
      "fsdp: a tiling policy lacks TilePlan plan(const Problem&) const; see tessera/tiling/policies.hpp");
  return Tiling<Policy>;
}

/// One tile whose activations are kept: the usual, untiled computation.
struct Untiled {
  static std::string text() { return "off"; }
  constexpr TilePlan plan(const Problem& problem) const {
    std::vector<Tile> tiles;
    append_tiles(tiles, 0, problem.tokens, problem.tokens, true);
    return with_costs(problem, std::move(tiles));
  }
  friend constexpr bool operator==(const Untiled&, const Untiled&) = default;
};

/// Cuts into the fewest tiles of at most `tokens_per_tile` tokens, of equal length except the last. All tiles are
/// recomputed. Returns Untiled's plan instead if it does not need more memory.
constexpr TilePlan cut(const Problem& problem, std::int64_t tokens_per_tile) {
  const std::int64_t count = ceil_divide(problem.tokens, std::max(tokens_per_tile, problem.fewest_tile_tokens()));
  std::vector<Tile> tiles;
  append_tiles(tiles, 0, problem.tokens, count == 0 ? 1 : ceil_divide(problem.tokens, count), false);
  const TilePlan plan = with_costs(problem, std::move(tiles));
  const TilePlan untiled = Untiled{}.plan(problem);
  return plan.peak_bytes() < untiled.peak_bytes() ? plan : untiled;
}

/// Cuts into at most `count` tiles of equal length, recomputed in backward. 5 tokens in 4 tiles give tiles of 2, 2
/// and 1.
constexpr TilePlan cut_into(const Problem& problem, std::int64_t count) {
  return cut(problem, std::max<std::int64_t>(ceil_divide(problem.tokens, count), 1));
}

/// At most N tiles of equal length, recomputed in backward.
/// Source: tiled MLP of ms-swift (PR 7090), which identifies the last tile by its index and misses it if there are
/// fewer tiles.
template <std::int64_t N>
struct StaticTiles {
  static_assert(N > 0, "fsdp: StaticTiles<N> needs at least one tile");
  static constexpr std::int64_t tile_count = N;  ///< maximum number of tiles of a sequence
  static std::string text() { return message("tiles:", N); }
  constexpr TilePlan plan(const Problem& problem) const { return cut_into(problem, N); }
};

/// Tiles of at most N tokens, recomputed in backward: as few tiles as possible, of equal length.
template <std::int64_t N>
struct TokensPerTile {
  static_assert(N > 0, "fsdp: TokensPerTile<N> needs at least one token a tile");
  static constexpr std::int64_t tokens_per_tile = N;  ///< maximum number of tokens of a tile
  static std::string text() { return message("tokens:", N); }
  constexpr TilePlan plan(const Problem& problem) const { return cut(problem, N); }
};

// ---- Budgets: the tiling that does the least additional work within a memory budget ----
//
// Longer tiles need workspace, whose memory could keep activations of tokens instead; shorter tiles read the weights
// and accumulate into their gradients more often. Among the plans that fit the budget, the one with the least
// recomputation plus traffic is chosen: the tile length and the number of kept tokens together.

/// Below this number of tokens, matmuls are bound by reading weights, so blocks of columns are tried before shorter
/// tiles.
inline constexpr std::int64_t shortest_tile = 256;
/// Tile lengths and blocks of columns are multiples of this number, unless there are fewer tokens or columns.
inline constexpr std::int64_t tile_step = 64;

namespace detail {

/// A plan as numbers of tokens. Kept tokens come first, recomputed tokens last.
struct Cut {
  std::int64_t kept = 0, kept_tile = 0, recomputed_tile = 0;
  std::int64_t block = 0;  ///< columns per block; 0: all at once
  std::int64_t work = std::numeric_limits<std::int64_t>::max();
};

/// Returns the cut with the least work among those whose recomputed tiles have `tile` tokens. Kept tiles may be longer,
/// since their workspace is smaller.
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
  // Without a last kept tile that may be too short to be worth keeping:
  consider(cut(most / kept_tile * kept_tile, kept_tile));
  return best;
}

/// Returns the shortest tile length that does not give more tiles than `longest`.
constexpr std::int64_t even(std::int64_t tokens, std::int64_t longest) {
  if (tokens == 0) return longest;
  return std::min(round_up(ceil_divide(tokens, ceil_divide(tokens, longest)), tile_step), longest);
}

constexpr TilePlan plan_of(const Problem& problem, const Cut& cut) {
  std::vector<Tile> tiles;
  append_tiles(tiles, 0, cut.kept, even(cut.kept, cut.kept_tile), true);
  append_tiles(tiles, cut.kept, problem.tokens, even(problem.tokens - cut.kept, cut.recomputed_tile), false);
  return with_costs(problem, std::move(tiles), cut.block);
}

/// Returns the columns per block of a tile of `tokens`: as few blocks as the memory allows, of equal size; 0 if even
/// the smallest block does not fit.
constexpr std::int64_t block_within(const Problem& problem, std::int64_t bytes, std::int64_t tokens) {
  const std::int64_t fixed = problem.tile_bytes(tokens, 0);
  const std::int64_t column = tokens * problem.tile_bytes_per_token_column;
  if (column == 0 || bytes < fixed) return 0;
  const std::int64_t most = (bytes - fixed) / column / tile_step * tile_step;
  return most == 0 || problem.columns <= tile_step ? 0 : even(problem.columns, most);
}

/// Returns the cut if even the shortest tile's workspace is too large: tries blocks of columns, then fewer tokens per
/// tile.
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

/// Returns the minimum number of bytes that any plan needs: the shortest tile, one block of columns at a time.
constexpr std::int64_t smallest_budget(const Problem& problem) {
  const std::int64_t tokens = problem.fewest_tile_tokens();
  return std::min(problem.tile_bytes(tokens), problem.columns > tile_step ? problem.tile_bytes(tokens, tile_step)
                                                                          : std::numeric_limits<std::int64_t>::max());
}

/// Returns the best plan within `bytes`, which must fit the kept activations of all repeated units and one tile's
/// workspace. Throws InputError if `bytes` is below smallest_budget.
constexpr TilePlan plan_within(const Problem& problem, std::int64_t bytes) {
  if (problem.tokens == 0) return with_costs(problem, {});
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

/// A tiling policy whose budget is chosen at run time.
struct Budget {
  std::int64_t bytes = 0;  ///< bytes for the activations and the workspace of all units that the policy tiles
  std::string text() const { return message("budget:", bytes); }
  constexpr TilePlan plan(const Problem& problem) const { return plan_within(problem, bytes); }
  friend constexpr bool operator==(const Budget&, const Budget&) = default;
};

/// A tiling policy whose budget is part of its type.
template <std::int64_t Bytes>
struct StaticBudget {
  static_assert(Bytes > 0, "fsdp: StaticBudget<Bytes> needs at least one byte");
  static constexpr std::int64_t bytes = Bytes;  ///< the budget, as in Budget
  static std::string text() { return message("budget:", Bytes); }
  constexpr TilePlan plan(const Problem& problem) const { return plan_within(problem, Bytes); }
};

/// Any of the policies, chosen at run time, as by the program's --tiling. The factory functions validate the numbers.
class RunTimeTiling {
 public:
  constexpr RunTimeTiling() = default;
  /// Makes the policy `off`: one tile, whose activations are kept.
  constexpr RunTimeTiling(Untiled) {}
  /// Makes the policy of at most `count` tiles of equal length. Throws InputError unless count > 0.
  static RunTimeTiling tiles(std::int64_t count);
  /// Makes the policy of tiles of at most `per_tile` tokens. Throws InputError unless per_tile > 0.
  static RunTimeTiling tokens(std::int64_t per_tile);
  /// Makes the policy that minimises work within `bytes`. Throws InputError unless bytes > 0.
  static RunTimeTiling budget(std::int64_t bytes);

  /// Makes a placeholder for a budget of all remaining memory. The trainer must replace it by `budget(bytes)` before
  /// `plan`.
  static constexpr RunTimeTiling budget_of_memory() { return RunTimeTiling(Kind::budget, 0); }
  /// Returns whether this is that placeholder.
  constexpr bool asks_for_memory() const { return kind_ == Kind::budget && number_ == 0; }
  constexpr bool states_budget() const { return kind_ == Kind::budget; }  ///< whether this is a budget of bytes

  /// Returns the policy as a value of --tiling, such as "tokens:256".
  std::string text() const;
  TilePlan plan(const Problem& problem) const;  ///< the plan of the chosen policy
  friend constexpr bool operator==(const RunTimeTiling&, const RunTimeTiling&) = default;

 private:
  enum class Kind : std::uint8_t { off, tiles, tokens, budget };
  constexpr RunTimeTiling(Kind kind, std::int64_t number) : kind_(kind), number_(number) {}
  Kind kind_ = Kind::off;
  std::int64_t number_ = 0;
};

/// Returns whether a policy specifies, by a member `bytes`, how many bytes its tiled units may use. Other policies
/// specify lengths or numbers of tiles of rows, which do not apply to units that are not tiled by rows.
template <Tiling Policy>
constexpr bool states_budget(const Policy& policy) {
  if constexpr (requires { policy.states_budget(); })
    return policy.states_budget();
  else
    return requires { requires std::convertible_to<decltype(policy.bytes), std::int64_t>; };
}

}  // namespace fsdp::tiling

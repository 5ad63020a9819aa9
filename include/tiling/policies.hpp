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
#include <string>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/tiling/budget.hpp>
#include <tessera/tiling/problem.hpp>
#include <tessera/tiling/tile_plan.hpp>

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
    return priced(problem, std::move(tiles));
  }
  friend constexpr bool operator==(const Untiled&, const Untiled&) = default;
};

/// Cuts into the fewest tiles of at most `tokens_per_tile` tokens, of equal length except the last. All tiles are
/// recomputed. Returns Untiled's plan instead if it does not need more memory.
constexpr TilePlan cut(const Problem& problem, std::int64_t tokens_per_tile) {
  const std::int64_t count = ceil_divide(problem.tokens, std::max(tokens_per_tile, problem.fewest_tile_tokens()));
  std::vector<Tile> tiles;
  append_tiles(tiles, 0, problem.tokens, count == 0 ? 1 : ceil_divide(problem.tokens, count), false);
  const TilePlan plan = priced(problem, std::move(tiles));
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
  /// Makes the policy that minimises work within `bytes`; see tessera/tiling/budget.hpp. Throws InputError unless bytes
  /// > 0.
  static RunTimeTiling budget(std::int64_t bytes);

  /// Makes a placeholder for a budget of all remaining memory. The trainer must replace it by `budget(bytes)` before
  /// `plan`.
  static constexpr RunTimeTiling budget_of_memory() { return RunTimeTiling(Kind::budget, 0); }
  /// Returns whether this is the placeholder made by budget_of_memory.
  constexpr bool asks_for_memory() const { return kind_ == Kind::budget && number_ == 0; }
  /// Returns whether this policy is a budget of bytes.
  constexpr bool states_budget() const { return kind_ == Kind::budget; }

  /// Returns the policy as a value of --tiling, such as "tokens:256".
  std::string text() const;
  /// Returns the plan of the chosen policy.
  TilePlan plan(const Problem& problem) const;
  friend constexpr bool operator==(const RunTimeTiling&, const RunTimeTiling&) = default;

 private:
  enum class Kind : std::uint8_t { off, tiles, tokens, budget };
  constexpr RunTimeTiling(Kind kind, std::int64_t number) : kind_(kind), number_(number) {}
  Kind kind_ = Kind::off;
  std::int64_t number_ = 0;
};

/// Returns whether a policy specifies, by a member `bytes`, how many bytes its tiled units may use. Other policies
/// specify lengths or numbers of tiles of rows, which do not apply to units that are not tiled by rows.
/// @{
template <Tiling Policy>
constexpr bool states_budget(const Policy&) {
  return requires(const Policy policy) {
    { policy.bytes } -> std::convertible_to<std::int64_t>;
  };
}
constexpr bool states_budget(const RunTimeTiling& tiling) { return tiling.states_budget(); }
/// @}

}  // namespace fsdp::tiling

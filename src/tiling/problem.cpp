// SPDX-License-Identifier: Apache-2.0
#include <tessera/tiling/problem.hpp>

#include <cstddef>
#include <ostream>
#include <string_view>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::tiling {
namespace {

struct Number {
  std::string_view name;
  std::int64_t value;
};

void check_problem(const Problem& problem) {
  for (const auto& [name, value] : {Number{"tokens", problem.tokens},
                                    {"columns", problem.columns},
                                    {"kept_bytes_per_token", problem.kept_bytes_per_token},
                                    {"tile_bytes_per_token", problem.tile_bytes_per_token},
                                    {"tile_bytes_per_token_column", problem.tile_bytes_per_token_column},
                                    {"blocked_bytes_per_token", problem.blocked_bytes_per_token},
                                    {"recomputed_flops_per_token", problem.recomputed_flops_per_token},
                                    {"traffic_per_tile", problem.traffic_per_tile},
                                    {"flops_per_byte", problem.flops_per_byte}})
    require<InputError>(value >= 0, "tiling: a module's problem states ", name, " = ", value,
                        "; the sizes of a tiling::Problem are at least 0");
  require<InputError>(problem.repeats >= 1, "tiling: a module's problem states repeats = ", problem.repeats,
                      "; a module counts itself, so they are at least 1");
}

void check_tiles(const Problem& problem, const TilePlan& plan) {
  constexpr std::string_view rule =
      "; the tiles of a plan must cover all tokens, each once and in order, and none may be empty";
  std::int64_t end = 0;
  for (std::size_t i = 0; i < plan.tiles.size(); ++i) {
    const Tile& tile = plan.tiles[i];
    const auto require_tile = [&](bool holds, const auto&... found) {
      require<InputError>(holds, "tiling: a policy's plan for ", problem.tokens, " tokens has tile ", i, " of ",
                          plan.tiles.size(), ", [", tile.begin, ", ", tile.end, "), which ", found..., rule);
    };
    require_tile(tile.begin < tile.end, "has no token");
    require_tile(tile.begin <= end, "leaves out tokens [", end, ", ", tile.begin, ")");
    require_tile(tile.begin >= end, "overlaps the tiles before it, which end at ", end);
    require_tile(tile.end <= problem.tokens, "ends behind the last token");
    end = tile.end;
  }
  require<InputError>(end == problem.tokens, "tiling: a policy's plan for ", problem.tokens, " tokens has ",
                      plan.tiles.size(), " tiles, which leave out tokens [", end, ", ", problem.tokens, ")", rule);
}

void check_costs(const Problem& problem, const TilePlan& plan) {
  require<InputError>(
      plan.columns_per_block >= 0 && (plan.columns_per_block == 0 || plan.columns_per_block < problem.columns),
      "tiling: a policy's plan for ", problem.tokens, " tokens has blocks of ", plan.columns_per_block, " of ",
      problem.columns, " columns; give fewer than all, or 0 for all at once");
  require<InputError>(plan.columns_per_block == 0 || plan.kept_tokens() == 0, "tiling: a policy's plan for ",
                      problem.tokens, " tokens keeps ", plan.kept_tokens(), " of them and has blocks of ",
                      plan.columns_per_block, " columns; kept activations have all columns, so take one of both");
  for (const auto& [name, value] : {Number{"kept_bytes", plan.kept_bytes},
                                    {"tile_bytes", plan.tile_bytes},
                                    {"repeats", plan.repeats},
                                    {"recomputed_flops", plan.recomputed_flops}})
    require<InputError>(value >= 0, "tiling: a policy's plan for ", problem.tokens, " tokens states ", name, " = ",
                        value, "; let tiling::with_costs make the costs of its tiles");
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const TilePlan& plan) {
  const auto kept = std::ranges::count_if(plan.tiles, &Tile::kept);
  out << plan.tiles.size() << (plan.tiles.size() == 1 ? " tile of " : " tiles of up to ") << plan.longest_tile()
      << " tokens";
  if (plan.columns_per_block > 0) out << " in blocks of " << plan.columns_per_block << " columns";
  return out << ", " << kept << " kept; " << plan.peak_bytes() << " bytes; " << plan.recomputed_flops
             << " FLOPs recomputed";
}

TilePlan checked(const Problem& problem, TilePlan plan) {
  check_problem(problem);
  check_tiles(problem, plan);
  check_costs(problem, plan);
  return with_costs(problem, std::move(plan.tiles), plan.columns_per_block);
}

}  // namespace fsdp::tiling

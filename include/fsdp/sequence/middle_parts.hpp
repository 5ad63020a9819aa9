// SPDX-License-Identifier: Apache-2.0
/// @file
/// The number of parts in which attention is computed if several ranks share sequences, derived from the tiling.
///
/// The bytes in flight between ranks grow with rows times heads. A tiling cuts rows. If it states a budget, heads are
/// cut here so that no more bytes are in flight than if the tiling cut the rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/execution/run_shape.hpp>
#include <tessera/fsdp/nn/one_of.hpp>
#include <tessera/fsdp/nn/stages.hpp>
#include <tessera/fsdp/sequence/staged_block.hpp>
#include <tessera/tiling/policies.hpp>
#include <tessera/tiling/problem.hpp>

namespace fsdp::plan {

/// Cuts `heads` heads of `rows` rows into the fewest parts such that two parts, the number in flight at a time, need no
/// more memory than `tile_rows` rows of all heads. Returns that number of parts, or `heads` if no number suffices.
/// Returns 1 for up to two heads, since two parts would then hold all of them. `allows(parts)`: whether the heads may
/// be cut into `parts` parts.
template <class Allows>
int parts_like_tiles(std::int64_t heads, std::int64_t rows, std::int64_t tile_rows, Allows allows) {
  if (tile_rows >= rows || heads <= 2) return 1;
  for (std::int64_t parts = 2; parts < heads; ++parts)
    if (heads % parts == 0 && 2 * ceil_divide(rows, parts) <= tile_rows && allows(parts))
      return static_cast<int>(parts);
  return static_cast<int>(heads);
}

/// Returns shape.middle_parts, or if it is 0 the number that the tiling determines for micro-batches of `rows` rows:
/// one part unless it states a budget. Heads are not separated if common inputs would then be exchanged twice. Returns
/// 1 for a model that cannot share sequences; check_shared_sequences reports the reason when the model is built.
template <class Model, tiling::Tiling Tiling>
int middle_parts(const Model& model, const Tiling& tiling, const RunShape& shape, std::int64_t rows) {
  if (shape.middle_parts != 0 || shape.ranks_per_sequence == 1) return std::max(shape.middle_parts, 1);
  if (!tiling::states_budget(tiling)) return 1;
  // Calls body(block, heads) for each block that defines its stages, with its heads on the first rank.
  const auto for_each_staged = [&](auto body) {
    for (int i = 0; i < model.blocks(); ++i)
      nn::visit_kind(model.block(i), [&](const auto& of_model) {
        using nn::staged;
        if constexpr (requires { staged(of_model).shares(); })
          body(staged(of_model), nn::HeadRange{0, staged(of_model).shares() / shape.ranks_per_sequence});
      });
  };
  // Returns the number of columns of a range: of its own inputs, and of common inputs.
  const auto columns_of = []<class Block>(const Block& block, const nn::HeadRange& range) {
    const auto columns = block.input_columns(range);
    const auto common = columns.end() - nn::common_inputs<Block>();
    return std::pair(std::accumulate(columns.begin(), common, std::int64_t{0}),
                     std::accumulate(common, columns.end(), std::int64_t{0}));
  };
  std::int64_t heads = 0, bytes = 0;  // heads of a rank; bytes in flight per row of all heads
  for_each_staged([&](const auto& block, const nn::HeadRange& own) {
    heads = std::gcd(heads, own.size());
    if (own.size() == 0) return;
    // The inputs in both placements (own rows and own heads), and the output in own heads.
    const std::int64_t columns = 2 * columns_of(block, own).first + block.output_columns(own);
    bytes = std::max(bytes, columns * std::int64_t{sizeof(typename Model::Stack::Local::Compute)});
  });
  if (heads == 0) return 1;
  const tiling::Problem problem{.tokens = rows, .tile_bytes_per_token = bytes, .traffic_per_tile = 1};
  std::optional<tiling::TilePlan> tiles;
  try {
    tiles = tiling.plan(problem);
  } catch (const InputError&) {  // no tile of rows is short enough: use the largest number of parts
  }
  const std::int64_t tile_rows = tiles ? tiling::checked(problem, *std::move(tiles)).longest_tile() : 1;
  return parts_like_tiles(heads, rows, tile_rows, [&](std::int64_t parts) {
    bool allowed = true;
    for_each_staged([&](const auto& block, const nn::HeadRange& own) {
      const nn::HeadRange part{0, own.size() / parts, 0, own.size()};
      allowed = allowed && columns_of(block, part).second == columns_of(block, own).second;
    });
    return allowed;
  });
}

}  // namespace fsdp::plan

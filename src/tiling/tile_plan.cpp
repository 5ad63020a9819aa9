// SPDX-License-Identifier: Apache-2.0
#include <tessera/tiling/tile_plan.hpp>

#include <ostream>

namespace fsdp::tiling {

std::ostream& operator<<(std::ostream& out, const TilePlan& plan) {
  const auto kept = std::count_if(plan.tiles.begin(), plan.tiles.end(), [](const Tile& tile) { return tile.kept; });
  out << plan.tiles.size() << (plan.tiles.size() == 1 ? " tile of " : " tiles of up to ") << plan.longest_tile()
      << " tokens";
  if (plan.columns_per_block > 0) out << " in blocks of " << plan.columns_per_block << " columns";
  return out << ", " << kept << " kept; " << plan.peak_bytes() << " bytes; " << plan.recomputed_flops
             << " FLOPs recomputed";
}

}  // namespace fsdp::tiling

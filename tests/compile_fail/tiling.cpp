// SPDX-License-Identifier: Apache-2.0
// expect 1: fsdp: StaticTiles<N> needs at least one tile
// expect 2: fsdp: TokensPerTile<N> needs at least one token a tile
// expect 3: fsdp: a tiling policy lacks TilePlan plan(const Problem&) const; see tessera/tiling/policies.hpp
// expect 4: fsdp: a tiling policy is copied to every rank; give it a copy constructor
#include <tessera/tiling/policies.hpp>

namespace fsdp::tiling {

struct WithoutPlan {};

struct NotCopyable {
  NotCopyable(const NotCopyable&) = delete;
  TilePlan plan(const Problem&) const { return {}; }
};

#if CASE == 0
static_assert(check_tiling<StaticTiles<1>>() && check_tiling<TokensPerTile<1>>());
#elif CASE == 1
StaticTiles<0> policy;
#elif CASE == 2
TokensPerTile<0> policy;
#elif CASE == 3
static_assert(check_tiling<WithoutPlan>());
#elif CASE == 4
static_assert(check_tiling<NotCopyable>());
#endif

}  // namespace fsdp::tiling

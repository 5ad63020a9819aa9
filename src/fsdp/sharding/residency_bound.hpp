// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a choice of holds gathers at least: a knapsack whose items may be cut.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/fsdp/sharding/rules.hpp>

namespace fsdp::sharding {

/// A hold of a group, and what it costs in the passes that are counted.
struct HoldOption {
  Hold hold = Hold::use;
  std::int64_t gathered = 0;    ///< elements
  std::vector<char> live = {};  ///< by computation: 1 if the group's weights are held during it
};

/// Returns the elements that are gathered at least if at most `budget` are held during each computation. `elements`
/// and `options`: of each group, the options in the order of their holds, none gathering more than the one before.
/// The bound is that of single computations, and of their mean, whichever is larger.
std::int64_t least_gathered_within(std::int64_t budget, const std::vector<std::int64_t>& elements,
                                   const std::vector<std::vector<HoldOption>>& options);

}  // namespace fsdp::sharding

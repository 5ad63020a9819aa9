// SPDX-License-Identifier: Apache-2.0
/// @file
/// A lower bound for the elements that a choice of holds gathers: a fractional knapsack.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/fsdp/sharding/problem.hpp>

namespace fsdp::sharding {

/// A hold of a group, and its cost in the counted passes.
struct HoldOption {
  Hold hold = Hold::use;
  std::int64_t gathered = 0;    ///< number of gathered elements
  std::vector<char> live = {};  ///< by computation: 1 if the group's weights are gathered during it
};

/// Returns a lower bound for the number of gathered elements if at most `budget` elements are held during each
/// computation. `elements` and `options` are by group; a group's options are in the order of their holds, and none
/// gathers more than the one before. The bound is the larger of the bound for single computations and the bound for
/// their mean.
std::int64_t least_gathered_within(std::int64_t budget, const std::vector<std::int64_t>& elements,
                                   const std::vector<std::vector<HoldOption>>& options);

}  // namespace fsdp::sharding

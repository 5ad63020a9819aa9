// SPDX-License-Identifier: Apache-2.0
/// @file
/// Validation of the plans that tiling policies return, where they are made: once per problem, not per step.
#pragma once

#include <tessera/tiling/problem.hpp>
#include <tessera/tiling/tile_plan.hpp>

namespace fsdp::tiling {

/// Returns the plan that a policy made for `problem`, with the costs of its tiles (`priced`), whatever it states.
/// Throws InputError, in one sentence, if
/// - the tiles do not cover [0, problem.tokens) once and in order, or one of them is empty;
/// - its blocks of columns are not fewer than the problem's columns, or a tile is kept next to them;
/// - it states negative bytes, FLOPs or repeats;
/// - a size of the problem, which a module states, is negative.
TilePlan checked(const Problem& problem, TilePlan plan);

}  // namespace fsdp::tiling

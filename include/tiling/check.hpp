// SPDX-License-Identifier: Apache-2.0
/// @file
/// Validation of the plans that tiling policies return. It runs when a plan is made: once per problem, not per step.
#pragma once

#include <tessera/tiling/problem.hpp>
#include <tessera/tiling/tile_plan.hpp>

namespace fsdp::tiling {

/// Returns the plan that a policy made for `problem`, with the costs of its tiles as computed by `priced`, whatever
/// costs the policy states. Throws InputError, with one sentence, if
/// - the tiles do not cover [0, problem.tokens) once and in order, or one of them is empty;
/// - blocks of columns are not smaller than the problem's columns, or are combined with a kept tile;
/// - the plan states negative bytes, FLOPs or repeats;
/// - a size of the problem, which a module states, is negative.
TilePlan checked(const Problem& problem, TilePlan plan);

}  // namespace fsdp::tiling

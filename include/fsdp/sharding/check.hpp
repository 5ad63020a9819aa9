// SPDX-License-Identifier: Apache-2.0
/// @file
/// The judge of schedules, those derived from rules and those that a strategy brings.
#pragma once

#include <cstdint>

#include <fsdp/sharding/problem.hpp>
#include <fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

/// Throws InputError with one sentence, which names the first bad task and the reason, unless the executor may run the
/// list:
/// - its computations are `computations(problem)`, all of them, in that order;
/// - weights are gathered or resident when used, never gathered twice, never released while a computation still needs
///   them or before one did, and given up at the end but by `generate`; shards that were stepped apart are gathered
///   across first;
/// - `gather_in_group` follows a `keep`, which follows a use;
/// - what is added to a gradient is reduced exactly once, then across exactly once where the group crosses an axis;
/// - a gradient is open while it is written and reduced, and closed between its reduction and the next write;
/// - no slot has two holders.
/// A list that neither opens nor closes gradients, or has no slot numbers, is judged without them: see place.hpp.
void check(const Schedule& schedule, const Problem& problem, const Names& names = {});

/// What place makes of a list, where check accepts both; throws what check throws.
Schedule checked_and_placed(const Schedule& schedule, const Problem& problem, const Names& names = {});

/// A number that two lists share only if they are the same, for all that matters.
std::uint64_t digest_of(const Schedule& schedule);

}  // namespace fsdp::sharding

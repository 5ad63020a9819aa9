// SPDX-License-Identifier: Apache-2.0
/// @file
/// Validation of schedules, whether derived from rules or provided by a strategy.
///
/// The rules are in judge.hpp, which is constexpr; own_strategy.hpp applies it to a strategy while compiling.
#pragma once

#include <cstdint>

#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

/// Throws InputError unless the executor can run the list. The message is one sentence that names the first bad task
/// and the reason. Rules:
/// - the computations are exactly `computations(problem)`, in that order;
/// - weights are gathered or resident when used. They are not gathered while they are gathered already, not released
///   before a use, and all released at the end, except by `generate`. Shards of which each rank stepped a part are
///   gathered across first;
/// - a `gather_in_group` comes after a `keep`, which comes after a use;
/// - what is added to a gradient is reduced exactly once, then reduced across exactly once if the group has an outer
///   axis;
/// - where a step is cut into pieces (Problem::pieces), a gradient is reduced in each micro-batch that it is written
/// in;
/// - a gradient is open while it is written and reduced, and closed between its reduction and the next write;
/// - nothing is sent between a `close_gradient`, which may wait, and the next computation: what a pass sends, and when,
///   must not depend on timing, or collectives that the caller makes in between would meet others on other ranks;
/// - an offloaded input is sent once, between the computation that makes it and its unit's forward, and fetched once
/// between that forward and the unit's backward;
/// - where units have stages, each exchange is made once, after the stage that makes what it moves and before the stage
/// that reads it;
/// - no slot and no buffer of inputs has two holders.
/// A list that neither opens nor closes gradients, moves no inputs, exchanges nothing, or has no slot numbers, is
/// checked without them: see slots.hpp.
void check(const Schedule& schedule, const Problem& problem, const Names& names = {});

/// Returns `assign_slots(schedule, problem)`, and checks the list both before and after. Throws what `check` throws.
Schedule checked_and_placed(const Schedule& schedule, const Problem& problem, const Names& names = {});

/// Returns a 64-bit hash of a list, by which ranks compare their schedules.
std::uint64_t digest_of(const Schedule& schedule);

}  // namespace fsdp::sharding

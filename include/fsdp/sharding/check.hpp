// SPDX-License-Identifier: Apache-2.0
/// @file
/// Validation of schedules, whether derived from rules or provided by a strategy.
///
/// The rules are in check_schedule.hpp, which is constexpr; own_strategy.hpp applies it to a strategy while compiling.
#pragma once

#include <cstdint>

#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

/// Throws InputError unless the executor can run the schedule. The message is one sentence that reports the first
/// invalid task and the reason. Rules:
/// - the computations are exactly `computations(problem)`, in that order;
/// - weights are gathered or resident when used. They are not gathered twice without a release in between, not released
///   before a use, and all released at the end, except in a `generate` pass. If each rank stepped only a part of a
///   shard, the shard is gathered over the outer axis first;
/// - a `gather_in_group` comes after a `keep`, which comes after a use;
/// - every contribution to a gradient is reduced exactly once, then reduced over the outer axis exactly once if the
///   group has one;
/// - if a step is split into pieces (Problem::pieces), a gradient is reduced in each micro-batch that writes it;
/// - a gradient is open while it is written and reduced, and closed between its reduction and the next write;
/// - no collective is started between a `close_gradient`, which may wait, and the next computation: the order of a
///   pass's collectives must not depend on timing, or collectives of the caller could be matched with different ones on
///   other ranks;
/// - an offloaded input is sent once, between the computation that makes it and its unit's forward, and fetched once
///   between that forward and the unit's backward;
/// - if units have stages, each exchange runs once, after the stage that produces its data and before the stage that
///   reads it;
/// - no slot and no input buffer has two holders at the same time.
/// The rules about gradient slots, input copies, exchanges and slot numbers apply only to a list that contains such
/// tasks or numbers: see slots.hpp.
void check(const Schedule& schedule, const Problem& problem, const Names& names = {});

/// Returns `assign_slots(schedule, problem)`, and checks the list both before and after. Throws what `check` throws.
Schedule checked_and_placed(const Schedule& schedule, const Problem& problem, const Names& names = {});

/// Returns a 64-bit hash of a schedule; ranks compare these hashes.
std::uint64_t digest_of(const Schedule& schedule);

}  // namespace fsdp::sharding

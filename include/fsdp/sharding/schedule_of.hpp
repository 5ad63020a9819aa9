// SPDX-License-Identifier: Apache-2.0
/// @file
/// The schedule of a strategy: provided by the strategy, or derived from its rules.
#pragma once

#include <concepts>
#include <type_traits>

#include <tessera/fsdp/buffer/placement.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

/// Returns `make_schedule(rules, problem)` (scheduler.hpp); compiled in the library.
Schedule schedule_from(const Rules& rules, const Problem& problem);

/// A strategy that provides its own schedule.
template <class S>
concept GivesSchedule = requires(const S strategy, const Problem& problem) {
  { strategy.schedule(problem) } -> std::same_as<Schedule>;
};

/// A strategy whose schedule `make_schedule` derives.
template <class S>
concept GivesRules = requires(const S strategy) {
  { strategy.rules() } -> std::same_as<Rules>;
};

/// A strategy that declares its memory needs separately from rules.
template <class S>
concept GivesFacts = requires(const S strategy) {
  { strategy.facts() } -> std::same_as<Facts>;
};

/// Returns the strategy's schedule for a problem. A strategy with both a schedule and rules uses its schedule.
template <class S>
Schedule schedule_of(const S& strategy, const Problem& problem) {
  if constexpr (GivesSchedule<S>)
    return strategy.schedule(problem);
  else
    return schedule_from(strategy.rules(), problem);
}

/// Returns the facts of a strategy: its own, or the facts in its rules. Sets whole_at_rest if its type replicates at
/// rest.
template <class S>
constexpr Facts facts_of(const S& strategy) {
  Facts facts;
  if constexpr (GivesFacts<S>)
    facts = strategy.facts();
  else
    facts = strategy.rules().facts;
  if constexpr (std::is_same_v<typename S::AtRest, buffer::Replicate>) facts.whole_at_rest = true;
  return facts;
}

}  // namespace fsdp::sharding

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The schedule of a strategy, which it brings itself or which its rules imply.
#pragma once

#include <concepts>

#include <fsdp/sharding/problem.hpp>
#include <fsdp/sharding/rules.hpp>
#include <fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

/// `make_schedule` (scheduler.hpp), compiled once.
Schedule schedule_from(const Rules& rules, const Problem& problem);

/// A strategy that brings its own list.
template <class S>
concept GivesSchedule = requires(const S strategy, const Problem& problem) {
  { strategy.schedule(problem) } -> std::same_as<Schedule>;
};

/// One that leaves the list to `make_schedule`.
template <class S>
concept GivesRules = requires(const S strategy) {
  { strategy.rules() } -> std::same_as<Rules>;
};

/// One that declares what memory it needs apart from rules.
template <class S>
concept GivesFacts = requires(const S strategy) {
  { strategy.facts() } -> std::same_as<Facts>;
};

/// The strategy's list for a problem; where it has both a schedule and rules, its schedule.
template <class S>
Schedule schedule_of(const S& strategy, const Problem& problem) {
  if constexpr (GivesSchedule<S>)
    return strategy.schedule(problem);
  else
    return schedule_from(strategy.rules(), problem);
}

/// What a strategy declares about memory: its facts, or those of its rules.
template <class S>
constexpr Facts facts_of(const S& strategy) {
  if constexpr (GivesFacts<S>)
    return strategy.facts();
  else
    return strategy.rules().facts;
}

}  // namespace fsdp::sharding

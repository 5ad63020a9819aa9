// SPDX-License-Identifier: Apache-2.0
/// @file
/// Small scheduling problems, and schedules as text.
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/scheduler.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp::sharding::test {

/// Embedding 0, blocks 1 to 3 and head 4, with one group each.
constexpr std::vector<UnitUse> three_blocks() {
  return {{.groups = {0}, .backward_needs_weights = false},
          {.groups = {1}},
          {.groups = {2}},
          {.groups = {3}},
          {.groups = {4}}};
}
/// The same with tied weights: embedding and head share group 5.
constexpr std::vector<UnitUse> three_blocks_tied() {
  return {{.groups = {5}, .backward_needs_weights = false},
          {.groups = {1}},
          {.groups = {2}},
          {.groups = {3}},
          {.groups = {4, 5}}};
}

/// A problem with up to six identical groups.
constexpr Problem problem_of(std::vector<UnitUse> units, int micro_batches, Pass pass = Pass::train,
                             const GroupFacts& alike = {}) {
  int groups = 0;
  for (const UnitUse& unit : units)
    for (const int group : unit.groups) groups = std::max(groups, group + 1);
  Problem problem;
  problem.units = std::move(units);
  problem.groups.assign(static_cast<std::size_t>(groups), alike);
  problem.micro_batches = micro_batches;
  problem.pass = pass;
  return problem;
}
/// A problem with different groups.
inline Problem problem_of(std::vector<UnitUse> units, std::vector<GroupFacts> groups, int micro_batches) {
  Problem problem = problem_of(std::move(units), micro_batches);
  problem.groups = std::move(groups);
  return problem;
}

/// Sets the axes of all groups.
constexpr void set_axes(Problem& problem, const Axes& axes) {
  for (GroupFacts& group : problem.groups) group.axes = axes;
}

/// The problem that a strategy gets for identical groups, on a mesh of 4 ranks, or of 2 x 2.
template <class Strategy>
constexpr Problem problem_for(const Strategy& strategy, std::vector<UnitUse> units, int micro_batches,
                              Pass pass = Pass::train) {
  const Facts facts = facts_of(strategy);
  Problem problem =
      problem_of(std::move(units), micro_batches, pass,
                 {.resident = std::is_same_v<typename Strategy::AtRest, buffer::Replicate>, .across = facts.across});
  set_axes(problem, {.shard = facts.across == Across::nothing ? 4 : 2,
                     .across = facts.across == Across::nothing ? 1 : 2,
                     .keep = facts.group_after_forward ? 2 : 0});
  return problem;
}

/// The strategy's schedule for that problem.
template <class Strategy>
constexpr Schedule list(const Strategy& strategy, std::vector<UnitUse> units, int micro_batches,
                        Pass pass = Pass::train) {
  return make_schedule(strategy.rules(), problem_for(strategy, std::move(units), micro_batches, pass));
}

/// "gather 0 forward 0 ...", with "@s" after tasks that have slot s and ":m" after tasks of a micro-batch m > 0.
inline std::string text_of(const Schedule& schedule) {
  std::string text;
  for (const Task& task : schedule) {
    text += (text.empty() ? "" : " ") + std::string(name_of(task.action)) + " " + std::to_string(task.index);
    if (task.slot >= 0) text += "@" + std::to_string(task.slot);
    if (task.micro_batch > 0) text += ":" + std::to_string(task.micro_batch);
  }
  return text;
}

}  // namespace fsdp::sharding::test

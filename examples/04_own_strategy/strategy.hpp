// SPDX-License-Identifier: Apache-2.0
/// @file
/// One strategy in both forms: as rules, from which the library derives the schedule of a step, and as the schedule
/// itself.
///
/// Both gather a unit's weights just before use, release them right after, and reduce gradients in every micro-batch.
/// This is the minimum memory for sharded weights, at the price that no gather overlaps with computation. The functions
/// are constexpr, so that the compiler can check their results.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <tessera/fsdp/sharding/own_strategy.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace mine {

struct ByRules {
  using AtRest = fsdp::buffer::Shard;
  using Layout = fsdp::buffer::PerParameter;

  constexpr fsdp::sharding::Rules rules() const {
    return {.hold = fsdp::sharding::Hold::use, .reduce_every_micro_batch = true, .prefetch_depth = 0};
  }
};

/// The same strategy as a list of tasks. sharding::check_schedule verifies the lists of small models at compile time;
/// sharding::check verifies the list of a model before any memory is allocated.
struct BySchedule {
  using AtRest = fsdp::buffer::Shard;
  using Layout = fsdp::buffer::PerParameter;

  /// Properties that affect memory and mesh; the defaults are correct here.
  constexpr fsdp::sharding::Facts facts() const { return {}; }

  constexpr fsdp::sharding::Schedule schedule(const fsdp::sharding::Problem& problem) const {
    using fsdp::sharding::Action;
    const fsdp::sharding::Schedule computations = fsdp::sharding::computations(problem);
    fsdp::sharding::Schedule list;
    std::vector<char> held(problem.groups.size(), problem.pass == fsdp::sharding::Pass::generate_again);
    for (std::size_t k = 0; k < computations.size(); ++k) {
      const fsdp::sharding::Task& task = computations[k];
      const auto add = [&](Action action, int group) { list.push_back({action, group, task.micro_batch}); };
      for (const int group : problem.unit(task.index).groups) {
        if (problem.group(group).resident || held[group] || !problem.uses_weights(task)) continue;
        add(Action::gather, group);
        held[group] = true;
      }
      list.push_back(task);
      for (const int group : problem.unit(task.index).groups) {
        const bool stays = problem.pass == fsdp::sharding::Pass::generate || used(problem, computations, k + 1, group);
        if (held[group] && !stays && problem.pass != fsdp::sharding::Pass::generate_again) {
          add(Action::release, group);
          held[group] = false;
        }
        if (problem.group(group).trainable && last_write(problem, computations, k, group)) add(Action::reduce, group);
      }
    }
    return list;
  }

 private:
  static constexpr bool has(const fsdp::sharding::Problem& problem, const fsdp::sharding::Task& task, int group) {
    return std::ranges::count(problem.unit(task.index).groups, group) > 0;
  }
  static constexpr bool used(const fsdp::sharding::Problem& problem, const fsdp::sharding::Schedule& list,
                             std::size_t k, int group) {
    return k < list.size() && problem.uses_weights(list[k]) && has(problem, list[k], group);
  }
  /// Whether task k writes the group's gradients, and no later task of its micro-batch does.
  static constexpr bool last_write(const fsdp::sharding::Problem& problem, const fsdp::sharding::Schedule& list,
                                   std::size_t k, int group) {
    const auto writes = [&](const fsdp::sharding::Task& task) {
      return problem.writes_gradients(task) && has(problem, task, group) && task.micro_batch == list[k].micro_batch;
    };
    return writes(list[k]) && std::none_of(list.begin() + static_cast<std::ptrdiff_t>(k) + 1, list.end(), writes);
  }
};

}  // namespace mine

// SPDX-License-Identifier: Apache-2.0
/// @file
/// A user-defined strategy with its own schedule, and the errors for invalid schedules.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <support/stack_runner.hpp>
#include <tessera/fsdp/sharding/own_strategy.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp::test {

/// Imitates FullyShard: unshards one computation ahead, reshards groups that are not used soon, and reduces gradients
/// after each last write.
struct OwnSchedule {
  static constexpr std::string_view name = "own schedule";
  using AtRest = buffer::Shard;
  using Layout = buffer::PerParameter;
  /// Corrupts the training schedule; nullptr to leave it unchanged.
  void (*spoil)(sharding::Schedule& list) = nullptr;

  sharding::Facts facts() const { return {}; }

  sharding::Schedule schedule(const sharding::Problem& problem) const {
    using sharding::Action;
    using sharding::Pass;
    const sharding::Schedule computations = sharding::computations(problem);
    const auto uses = [&](std::size_t k, int group) {
      return k < computations.size() && problem.uses_weights(computations[k]) &&
             touches(problem, computations[k], group);
    };
    sharding::Schedule list;
    std::vector<bool> held(problem.groups.size(), problem.pass == Pass::generate_again);
    for (std::size_t k = 0; k < computations.size(); ++k) {
      const int micro_batch = computations[k].micro_batch;
      const int groups = static_cast<int>(problem.groups.size());
      for (const std::size_t ahead : {k, k + 1})
        for (int group = 0; group < groups; ++group) {
          const auto gathered = held[static_cast<std::size_t>(group)];
          if (gathered || problem.group(group).resident || !uses(ahead, group)) continue;
          list.push_back({Action::gather, group, computations[ahead].micro_batch});
          held[static_cast<std::size_t>(group)] = true;
        }
      list.push_back(computations[k]);
      for (int group = 0; group < groups; ++group) {
        if (problem.pass == Pass::generate || problem.pass == Pass::generate_again) break;
        const bool soon = uses(k + 1, group) || (uses(k + 2, group) && k + 2 < computations.size() &&
                                                 computations[k + 2].micro_batch == micro_batch);
        if (!uses(k, group) || !held[static_cast<std::size_t>(group)] || soon) continue;
        list.push_back({Action::release, group, micro_batch});
        held[static_cast<std::size_t>(group)] = false;
      }
      for (int group = 0; group < groups; ++group)
        if (problem.group(group).trainable && is_last_write(problem, computations, k, group))
          list.push_back({Action::reduce, group, micro_batch});
    }
    if (spoil != nullptr && problem.pass == Pass::train) spoil(list);
    return list;
  }

 private:
  static bool touches(const sharding::Problem& problem, const sharding::Task& task, int group) {
    const auto& groups = problem.unit(task.index).groups;
    return std::find(groups.begin(), groups.end(), group) != groups.end();
  }
  static bool is_last_write(const sharding::Problem& problem, const sharding::Schedule& computations, std::size_t k,
                            int group) {
    const auto writes = [&](const sharding::Task& task) {
      return problem.writes_gradients(task) && touches(problem, task, group) &&
             task.micro_batch == computations[k].micro_batch;
    };
    const auto later = computations.begin() + static_cast<std::ptrdiff_t>(k) + 1;
    return writes(computations[k]) && std::none_of(later, computations.end(), writes);
  }
};

RunResults run_own_schedule(const RunOptions& options);

/// The message that each rank's ShardedModule throws if it is constructed with `spoil` on the ranks with on(rank). Its
/// plan exceeds the available memory, so that a different error shows that it has allocated.
std::vector<std::string> refusals(
    const RunOptions& options, void (*spoil)(sharding::Schedule& list),
    bool (*on)(int rank) = [](int) { return true; });

}  // namespace fsdp::test

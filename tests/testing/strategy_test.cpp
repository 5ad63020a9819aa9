// SPDX-License-Identifier: Apache-2.0
// The strategy suite runs the built-in strategies and finds the flaw of each flawed one.
#include <tessera/fsdp/testing/strategy.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/fsdp/buffer/layout_policies.hpp>
#include <tessera/fsdp/sharding/own_strategy.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>

#include <support/stacks/own_schedule.hpp>

#include "failures.hpp"

namespace fsdp::testing {
namespace {

using sharding::Action;
using sharding::Schedule;
using sharding::Task;

/// Whether every strategy is tested with every layout (tests/long/kit_test.py) or only a sample.
bool all_of_them() {
  const char* const sweep = std::getenv("TESSERA_SWEEP");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  return sweep != nullptr && std::string_view(sweep) == "whole";
}

const std::array<buffer::AnyLayout, 5> layouts{buffer::PerParameter{}, buffer::Flat{}, buffer::Rows{}, buffer::Owned{},
                                               buffer::Blocks{}};

/// Strategies that shard over all ranks, as values of one type.
struct Ours {
  static std::vector<RunTimeSharded> strategies() {
    if (!all_of_them())
      return {{.strategy = FullyShard<>{}},
              {.strategy = FullyShard<>{.budget = 1 << 17}},
              {.strategy = FullyShard<ReshardAfterForward::no>{.prefetch_depth = 2}},
              {.strategy = Zero2{}},
              {.strategy = Zero3{.persistence_threshold = 20}},
              {.strategy = FullyShard<>{}, .other_layout = buffer::Owned{}},
              {.strategy = FullyShard<>{}, .other_layout = buffer::Blocks{.elements = 40}}};
    std::vector<RunTimeSharded> all{
        {.strategy = FullyShard<>{.prefetch_depth = 3}},
        {.strategy = FullyShard<>{.budget = 1 << 17}},
        {.strategy = FullyShard<>{.reduce = ReduceGradients::last_micro_batch}},
        {.strategy = FullyShard<ReshardAfterForward::no>{.reduce = ReduceGradients::last_micro_batch}},
        {.strategy = Zero3{.persistence_threshold = 20, .live_bound = 6000}}};
    for (const buffer::AnyLayout& layout : layouts) {
      all.push_back({.strategy = FullyShard<>{}, .other_layout = layout});
      all.push_back({.strategy = FullyShard<ReshardAfterForward::no>{}, .other_layout = layout});
      all.push_back({.strategy = Zero1{}, .other_layout = layout});
      all.push_back({.strategy = Zero2{}, .other_layout = layout});
      all.push_back({.strategy = Zero3{}, .other_layout = layout});
    }
    return all;
  }
};
/// The same strategies within groups, and strategies that keep the weights in a group after forward.
struct OnTwoAxes {
  static std::vector<RunTimeGrouped> strategies() {
    std::vector<RunTimeGrouped> all{{.strategy = HybridShard<RunTimeSharded>{.group = 1}},
                                    {.strategy = HybridShard<RunTimeSharded>{.group = 2}}};
    if (!all_of_them()) return all;
    for (const int group : {1, 2, 4})
      all.push_back({.strategy = FullyShard<ReshardAfterForward::to_group>{.group = group}});
    for (const RunTimeSharded& inner : Ours::strategies())
      all.push_back({.strategy = HybridShard<RunTimeSharded>{.group = 2, .inner = inner}});
    return all;
  }
};
/// The same strategies with the optimizer state sharded across groups.
struct Full {
  static std::vector<RunTimeHybridFull> strategies() {
    if (!all_of_them()) return {{.group = 2}};
    std::vector<RunTimeHybridFull> all;
    for (const RunTimeSharded& inner : Ours::strategies()) all.push_back({.group = 2, .inner = inner});
    return all;
  }
};
/// The same strategies with the optimizer state in host memory.
struct Offloaded {
  static std::vector<Offload<RunTimeSharded>> strategies() {
    if (!all_of_them()) return {{{.strategy = Zero3{}}}};
    std::vector<Offload<RunTimeSharded>> all;
    for (const RunTimeSharded& each : Ours::strategies()) all.push_back({each});
    return all;
  }
};
struct EveryRankHasAll {
  using InAnyLayout = WithLayout<Replicated, buffer::AnyLayout>;
  static std::vector<InAnyLayout> strategies() {
    if (!all_of_them()) return {InAnyLayout{{}, buffer::Rows{}}};
    std::vector<InAnyLayout> all;
    for (const buffer::AnyLayout& layout : layouts) all.push_back({{}, layout});
    return all;
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(OverAllRanks, StrategySuite, Ours);
INSTANTIATE_TYPED_TEST_SUITE_P(OnTwoAxes, StrategySuite, OnTwoAxes);
INSTANTIATE_TYPED_TEST_SUITE_P(OnTwoAxesFull, StrategySuite, Full);
INSTANTIATE_TYPED_TEST_SUITE_P(Offloaded, StrategySuite, Offloaded);
INSTANTIATE_TYPED_TEST_SUITE_P(EveryRankHasAll, StrategySuite, EveryRankHasAll);
INSTANTIATE_TYPED_TEST_SUITE_P(OfItsOwnList, StrategySuite, test::OwnSchedule);

Schedule::iterator find(Schedule& list, Action action, int index) {
  return std::ranges::find_if(list, [&](const Task& task) { return task.action == action && task.index == index; });
}

/// Expects that the suite reports this message for a training schedule that `spoil` corrupts.
void expect_unsound(void (*spoil)(Schedule& list), std::string_view found) {
  const auto messages = failures_of([&] { check_strategy_lists(test::OwnSchedule{.spoil = spoil}); });
  expect_sentence(messages, "every list of the strategy passes sharding::check",
                  "1 rank, 1 micro-batch, lists of training", found);
}

TEST(StrategySuiteFinds, ADuplicateReduction) {
  expect_unsound([](Schedule& list) { list.push_back({.action = Action::reduce, .index = 1}); },
                 "reduce block 0: nothing was added to its gradient since it was reduced");
}

TEST(StrategySuiteFinds, AMissingReduction) {
  expect_unsound([](Schedule& list) { list.erase(find(list, Action::reduce, 1)); },
                 "what it adds to the gradient of block 0 is never reduced");
}

TEST(StrategySuiteFinds, AMissingGather) {
  expect_unsound([](Schedule& list) { list.erase(find(list, Action::gather, 4)); },
                 "the weights of head are not gathered");
}

TEST(StrategySuiteFinds, AnEarlyRelease) {
  expect_unsound([](Schedule& list) { std::iter_swap(find(list, Action::release, 2), find(list, Action::forward, 2)); },
                 "release block 1: its weights are still used");
}

/// A strategy whose schedule differs between calls: it swaps the first gather with the next task in every second call.
struct Fickle : test::OwnSchedule {
  Schedule schedule(const sharding::Problem& problem) const {
    static std::atomic<int> asked{0};
    Schedule list = test::OwnSchedule::schedule(problem);
    if (problem.pass != sharding::Pass::train || ++asked % 2 == 0) return list;
    const auto gather = std::ranges::find(list, Action::gather, &Task::action);
    if (gather != list.end()) std::rotate(gather, gather + 1, gather + 2);
    return list;
  }
};
TEST(StrategySuiteFinds, SchedulesThatDifferBetweenCalls) {
  expect_failure([] { check_strategy_lists(Fickle{}); }, "a strategy and its copy make the same list",
                 "1 micro-batch, lists of training", "two lists differ");
}

/// Layouts of PerParameter; those over two ranks are corrupted.
struct SpoiltLayout {
  static constexpr std::string_view name = "spoilt";
  void (*spoil)(buffer::Layout&) = [](buffer::Layout&) {};
  std::size_t group = 4;  ///< index of the corrupted group
  std::vector<buffer::Layout> build(std::span<const buffer::TensorGroup> groups, int parts) const {
    std::vector<buffer::Layout> layouts = buffer::PerParameter{}.build(groups, parts);
    if (parts == 2) spoil(layouts[std::min(group, layouts.size() - 1)]);
    return layouts;
  }
};
TEST(StrategySuiteFinds, LayoutsThatAssignElementsToNoRankOrTwo) {
  const auto found = [](void (*spoil)(buffer::Layout&), std::string_view what) {
    const WithLayout<FullyShard<>, SpoiltLayout> strategy{{}, {spoil}};
    expect_failure([&] { check_strategy_lists(strategy); }, "every list of the strategy",
                   "2 ranks, 1 micro-batch, lists of training", what);
  };
  found([](buffer::Layout& layout) { --layout.runs.back().counts.back(); },
        "layout spoilt: its layout of group 4 over 2 ranks gives element 298 of tensor 0 ('head') to no rank");
  found([](buffer::Layout& layout) { layout.runs.push_back(layout.runs.back()); }, "to two ranks");
}

/// Layouts over two ranks that swap two tensors of equal size in every second call. Each rank calls separately.
TEST(StrategySuiteFinds, LayoutsThatDifferBetweenRanks) {
  const auto swap = [](buffer::Layout& layout) {
    static std::atomic<int> asked{0};
    if (++asked % 2 == 0) std::swap(layout.runs.front().local, layout.runs.back().local);
  };
  const WithLayout<FullyShard<>, SpoiltLayout> strategy{{}, {swap, 1}};
  expect_failure([&] { check_strategy_trains(strategy); }, "training ends without an error", "2 ranks, 1 micro-batch",
                 "has another layout than rank 0");
}

/// A hybrid strategy whose type shards the optimizer state across groups although its facts do not: no collective would
/// gather the updated weights.
struct StateAcross : FullyShard<> {
  static constexpr int mesh_axes = 2;
  using Across = buffer::Shard;
  int ranks_per_group() const { return 1; }
  constexpr sharding::Rules rules() const { return {.facts = {.across = sharding::Across::all_reduce}}; }
};
TEST(StrategySuiteFinds, FactsThatContradictTheTypeOfAStrategy) {
  expect_failure([] { check_strategy_lists(StateAcross{}); }, "every list of the strategy", "1 rank, 1 micro-batch",
                 "places optimizer state across groups as Shard, and its facts.across is not");
}

/// Every valid schedule trains correctly; therefore this test passes different numbers to the comparison itself.
TEST(StrategySuiteFinds, DifferentWeights) {
  const std::vector<float> expected{1.0f, 2.0f}, found{1.0f, 2.0000002f};
  const auto messages = failures_of([&] {
    const std::string where = StrategyCase{.ranks = 3}.in_words();
    EXPECT_FALSE(expect_values("losses and weights", where, "a weight", found, expected));
    EXPECT_TRUE(expect_near("losses and weights", where, "a weight", found, expected));
  });
  expect_sentence(messages, "losses and weights", "3 ranks, 1 micro-batch", "a weight: element 1 is 2.00000024");
  EXPECT_EQ(messages.size(), 1u);
}

TEST(StrategySuiteFinds, GroupSizesThatDivideNoNumberOfRanks) {
  const RunTimeGrouped strategy{.strategy = HybridShard<RunTimeSharded>{.group = 7}};
  expect_failure([&] { check_strategy_trains(strategy); }, "training ends without an error", "1 to 4 ranks",
                 "ranks_per_group() divides none of them");
}

}  // namespace
}  // namespace fsdp::testing

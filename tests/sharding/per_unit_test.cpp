// SPDX-License-Identifier: Apache-2.0
// A strategy for each unit: how its parts become facts of groups, and the schedules that follow.
#include <tessera/fsdp/sharding/per_unit.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <support/problems.hpp>
#include <support/temporary_folder.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/sharding/check.hpp>
#include <tessera/fsdp/sharding/own_strategy.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp::sharding {
namespace {

static_assert(check_sharding<PerUnit<Zero1, Replicated, FullyShard<>>>());
static_assert(
    std::is_same_v<decltype(PerUnit{on("*", Zero1{}), otherwise(FullyShard<>{})}), PerUnit<Zero1, FullyShard<>>>);
static_assert(std::is_same_v<OptimizerPlacement<PerUnit<Zero1, HybridShard<Zero1>>>, buffer::Replicate>);
static_assert(
    std::is_same_v<OptimizerPlacement<PerUnit<Zero1, HybridShard<Zero1, OptimizerAcross::sharded>>>, ByGroup>);
static_assert(holds<PerUnit<Zero1, Replicated, FullyShard<>, FullyShard<ReshardAfterForward::to_group>>>());
static_assert(holds<PerUnit<HybridShard<Zero3, OptimizerAcross::sharded>, HybridShard<Zero1>, Zero2>>());
static_assert(holds<Reproducible<PerUnit<Zero1, FullyShard<>>>>());

/// The problem of three blocks on 4 ranks whose groups have the parts `part_of` (by group) of a strategy.
template <class Strategy>
Problem problem_of_parts(const Strategy& strategy, const std::vector<std::size_t>& part_of, int micro_batches) {
  const StrategyCalls calls = calls_of(strategy);
  Problem problem = test::problem_of(test::three_blocks(), micro_batches);
  for (std::size_t i = 0; i < problem.groups.size(); ++i) {
    problem.groups[i] = facts_of({}, calls.parts[part_of[i]], {.shard = 4});
    problem.groups[i].elements = 64;
    problem.groups[i].slot_elements = problem.groups[i].resident ? 0 : 64;
  }
  return problem;
}

/// Lists how often each group has an action, as in "1 2 0 1 1".
std::string counts(const Schedule& list, Action action, int groups) {
  std::string text;
  for (int group = 0; group < groups; ++group)
    text += (text.empty() ? "" : " ") + std::to_string(std::ranges::count_if(list, [&](const Task& task) {
              return task.action == action && task.index == group;
            }));
  return text;
}

TEST(PerUnit, EveryGroupIsGatheredAndReducedAsItsOwnStrategyDoes) {
  const PerUnit strategy{on("block 0", Zero1{}), on("head", Replicated{}), on("block 1", Zero2{}),
                         otherwise(FullyShard<>{})};
  const Problem problem = problem_of_parts(strategy, {3, 0, 2, 3, 1}, 2);
  const Schedule list = schedule_of(strategy, problem);
  check(checked_and_placed(list, problem), problem);
  // The embedding is not gathered in backward, and block 2 stays gathered from its forward to its backward.
  EXPECT_EQ(counts(list, Action::gather, 5), "2 1 1 2 0");
  EXPECT_EQ(counts(list, Action::reduce, 5), "2 1 2 2 1");
}

/// Its weights are used as if they were whole at rest.
struct NeverGathers : Zero3 {
  Rules rules() const { return {.hold = Hold::always}; }
};

TEST(PerUnit, ABrokenRuleOfAPartIsFoundWhereverThePartStands) {
  const PerUnit strategy{on("a", NeverGathers{}), otherwise(FullyShard<>{})};
  for (std::size_t group = 0; group < 5; ++group) {
    std::vector<std::size_t> parts(5, 1);
    parts[group] = 0;
    const Problem problem = problem_of_parts(strategy, parts, 2);
    EXPECT_INPUT_ERROR(checked_and_placed(schedule_of(strategy, problem), problem),
                       message("the weights of group ", group, " are not gathered; gather them before"));
  }
}

TEST(PerUnit, PartsWithTheSameStrategyAreOne) {
  const PerUnit equal{on("a", FullyShard<>{}), on("b", Zero2{}), on("c", FullyShard<>{}), otherwise(FullyShard<>{})};
  std::vector<std::size_t> same;
  for (const StrategyPart& part : calls_of(equal).parts) same.push_back(part.same_as);
  EXPECT_EQ(same, (std::vector<std::size_t>{0, 1, 0, 0}));
  using Owned = WithLayout<Zero2, buffer::Owned>;
  const PerUnit layouts{on("a", Owned{}), on("b", Owned{{}, {.slack = 0.5}}), otherwise(Zero2{})};
  same.clear();
  for (const StrategyPart& part : calls_of(layouts).parts) same.push_back(part.same_as);
  EXPECT_EQ(same, (std::vector<std::size_t>{0, 1, 2}));
}

TEST(PerUnit, HasATextOfItsParts) {
  EXPECT_EQ(policy_text(PerUnit{on("*norm*", Replicated{}), otherwise(FullyShard<>{.prefetch_depth = 1})}),
            "*norm* = replicated, otherwise fsdp2");
}

TEST(PerUnit, RefusesNumbersOfTheModuleInsideOfAPart) {
  const auto parts_of = [](const auto& strategy) { return calls_of(PerUnit{on("a", strategy), otherwise(Zero1{})}); };
  EXPECT_INPUT_ERROR(parts_of(FullyShard<>{.prefetch_depth = 2}),
                     "sharding: the strategy 'fsdp2:prefetch=2' of 'a' sets how many units are gathered "
                     "ahead, which is one for the whole module; set it next to the parts (--sharding), or "
                     "leave it out");
  EXPECT_INPUT_ERROR(parts_of(Zero3{.live_bound = 64}),
                     "sharding: the strategy 'zero3:live=64' of 'a' sets "
                     "a bound of live elements");
  EXPECT_INPUT_ERROR(parts_of(Zero3{.budget = 64}),
                     "sharding: the strategy 'zero3:budget=64' of 'a' sets a "
                     "budget for gathered weights");
}

TEST(PerUnit, TakesTheNumbersOfTheModuleFromTheLastPart) {
  const PerUnit strategy{on("a", Zero1{}), otherwise(FullyShard<>{.prefetch_depth = 3, .budget = 64})};
  EXPECT_EQ(strategy.rules().prefetch_depth, 3);
  EXPECT_EQ(calls_of(strategy).facts.budget, 64);
  EXPECT_EQ(calls_of(PerUnit<Zero1, Zero2>{}).parts.size(), 1u);
}

TEST(PerUnit, RefusesRunTimePartsThatTheModuleCannotHave) {
  const auto refused = [](const auto& part) {
    RunTimeAny strategy{Zero2{}};
    strategy.units = {part_of(on("a", part))};
    return fsdp::test::input_error_of([&] { calls_of(strategy); });
  };
  EXPECT_NE(refused(Offload<Zero1>{}).find("sets where optimizer state is"), std::string::npos);
  EXPECT_NE(refused(HybridShard<Zero1, OptimizerAcross::sharded>{.group = 2}).find("places optimizer state across"),
            std::string::npos);
  RunTimeHybridFull hybrid{.group = 2, .inner = {Zero1{}}};
  hybrid.inner.units = {part_of(on("a", HybridShard<Zero1>{.group = 4}))};
  EXPECT_INPUT_ERROR(calls_of(hybrid), "sharding: the part ");
  PerUnit typed{on("a", Zero1{}), otherwise(Zero2{})};
  typed.units.push_back(part_of(on("b", HybridShard<Zero1, OptimizerAcross::sharded>{.group = 2})));
  EXPECT_INPUT_ERROR(calls_of(typed),
                     "sharding: the part 'hybrid:2:full:zero1' places optimizer state across groups differently");
}

TEST(PerUnit, RefusesPartsOfAStrategyThatARunTimeStrategyHolds) {
  RunTimeSharded inner{Zero2{}};
  inner.units = {part_of(on("a", Zero1{}))};
  EXPECT_INPUT_ERROR(calls_of(RunTimeAny{HybridShard<RunTimeSharded>{.group = 2, .inner = inner}}),
                     "sharding: the strategy that a RunTimeStrategy holds has parts; list them in the units");
}

TEST(PerUnit, RefusesDifferentGroupsOfRanks) {
  const PerUnit strategy{on("a", HybridShard<Zero1>{.group = 2}), otherwise(HybridShard<Zero2>{.group = 4})};
  EXPECT_INPUT_ERROR(calls_of(strategy),
                     "sharding: the parts of a strategy per unit form groups of 4 ranks and, in "
                     "'hybrid:2:zero1', of 2, and a module has one mesh");
}

TEST(PerUnit, ARunTimeStrategyTakesOthersForSomeTensors) {
  RunTimeAny strategy{FullyShard<>{.prefetch_depth = 2}};
  strategy.units.push_back(part_of(on("block 0", RunTimeAny{Zero1{}})));
  const StrategyCalls calls = calls_of(strategy);
  ASSERT_EQ(calls.parts.size(), 2u);
  EXPECT_EQ(calls.parts[0].rules.hold, Hold::step);
  const Problem problem = problem_of_parts(strategy, {1, 0, 1, 1, 1}, 2);
  const Schedule list = calls.schedule_of(problem);
  EXPECT_EQ(counts(list, Action::gather, 5), "2 1 4 2 2");
  // The prefetch depth is that of the whole module: two gathers precede the first computation's second successor.
  EXPECT_EQ(list[2].action, Action::gather);
  strategy.units.push_back(part_of(on("head", RunTimeAny{Zero3{.live_bound = 5}})));
  EXPECT_THROW(calls_of(strategy), InputError);
}

}  // namespace
}  // namespace fsdp::sharding

// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <support/temporary_folder.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/module/module_plan.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/module/stack_mesh.hpp>
#include <tessera/fsdp/sharding/own_strategy.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp {
namespace {

using Comm = comm::Threads<>;

/// A strategy with groups of two ranks; the tests specify its facts.
struct InGroups : FullyShard<> {
  static constexpr int mesh_axes = 2;
  int ranks_per_group() const { return 2; }
};

template <class Strategy = InGroups>
sharding::Axes axes_of_four_ranks(const sharding::Facts& facts) {
  StrategyCalls strategy = calls_of(Strategy{});
  strategy.facts = strategy.parts.front().rules.facts = facts;
  std::vector<sharding::Axes> axes(4);
  Comm::run(4, {}, [&](Comm& world) {
    const StackMesh<Stack<Strategy, Comm, Fp32, tiling::Untiled>> mesh(world, strategy);
    axes[static_cast<std::size_t>(world.rank())] = mesh.axes(strategy).front();
  });
  return axes[0];
}

TEST(StackMesh, ShardsWithinAGroupOrKeepsWeightsThereAfterForward) {
  const sharding::Axes hybrid = axes_of_four_ranks({.across = sharding::Across::all_reduce});
  EXPECT_EQ(hybrid.shard, 2);
  EXPECT_EQ(hybrid.across, 2);
  const sharding::Axes kept = axes_of_four_ranks({.group_after_forward = true});
  EXPECT_EQ(kept.shard, 4);
  EXPECT_EQ(kept.keep, 2);
}

/// The same strategy, whose type shards the optimizer state across groups.
struct StateAcross : InGroups {
  using Across = buffer::Shard;
};

template <class Strategy = InGroups>
void expect_refused(const sharding::Facts& facts, const std::string& begin) {
  const std::string said = test::input_error_of([&] { axes_of_four_ranks<Strategy>(facts); });
  EXPECT_TRUE(said.starts_with(begin)) << said << "\nand not: " << begin;
}

TEST(StackMesh, RefusesGroupsThatTheStrategyDoesNotUse) {
  expect_refused({}, "sharding: the mesh has groups of 2 ranks, and the strategy's facts use them");
}

/// Otherwise each rank would step only a part of its weights, and no collective would gather them.
TEST(StackMesh, RefusesFactsThatContradictTheOptimizerPlacement) {
  expect_refused<StateAcross>({.across = sharding::Across::all_reduce},
                              "sharding: the strategy's type places optimizer state across groups as Shard, and its "
                              "facts.across is not sharding::Across::shard");
  expect_refused({.across = sharding::Across::shard},
                 "sharding: the strategy's type places optimizer state across groups as Replicate, and its "
                 "facts.across is sharding::Across::shard");
}

TEST(StackMesh, RefusesFactsAboutGroupsOnAMeshOfOneAxis) {
  for (const sharding::Facts& facts :
       {sharding::Facts{.across = sharding::Across::all_reduce}, sharding::Facts{.group_after_forward = true}})
    expect_refused<FullyShard<>>(facts, "sharding: a strategy's facts state what crosses groups of ranks");
}

/// Some values of these types have groups and others do not, including types that contain such types.
TEST(StackMesh, ARunTimeStrategysValueDeterminesTheNumberOfAxes) {
  static_assert(axes_by_value<RunTimeAny> && axes_by_value<RunTimeStrategy<RunTimeAny>> &&
                axes_by_value<RunTimeStrategy<RunTimeGrouped, RunTimeAny>> && axes_by_value<Offload<RunTimeAny>> &&
                !axes_by_value<RunTimeSharded> && !axes_by_value<RunTimeGrouped>);
  Comm::run(2, {}, [](Comm& world) {
    using Strategy = RunTimeStrategy<RunTimeAny>;
    using Mesh = StackMesh<Stack<Strategy, Comm, Fp32, tiling::Untiled>>;
    const Strategy replicated{RunTimeAny{Replicated{}}}, hybrid{RunTimeAny{HybridShard<RunTimeSharded>{.group = 1}}};
    EXPECT_FALSE(Mesh(world, calls_of(replicated)).has_groups());
    EXPECT_TRUE(Mesh(world, calls_of(hybrid)).has_groups());
  });
}

TEST(StackMesh, RefusesAValueWhoseFactsContradictItsAxes) {
  const std::string none =
      "sharding: a strategy's facts state what crosses groups of ranks or stays in them, and there "
      "are none: its ranks_per_group() is 0, or the mesh has one axis";
  expect_refused<RunTimeAny>({.group_after_forward = true}, none);
  expect_refused({.across = sharding::Across::all_reduce, .whole_at_rest = true},
                 "sharding: a strategy keeps all weights on every rank (facts.whole_at_rest), so that groups");
}

// The plan of a module within a budget: all passes share the slots.

using sharding::Pass;

/// Plans units of 64, 256, 192, 256 and 64 elements on 4 ranks, with 2 bytes per weight.
ModulePlan planned(const FullyShard<>& strategy, const PassPlan& passes) {
  std::vector<Unit> units;
  for (const std::int64_t rows : {8, 32, 24, 32, 8}) {
    const std::string name = "unit " + std::to_string(units.size());
    units.push_back({.name = name, .parameters = {{name, {rows, 8}}}});
  }
  ModulePlan plan(units, passes, calls_of(strategy), {{.shard = 4}}, 4, true);
  for (const GroupedParameters& group : plan.grouped()) {
    sharding::GroupFacts facts = plan.facts_of(group);
    facts.slot_elements = facts.elements;
    facts.bytes_per_weight = 2;
    plan.add(facts);
  }
  plan.make_schedules();
  return plan;
}

std::int64_t slot_bytes(const ModulePlan& plan) {
  const std::vector<std::int64_t>& slots = plan.slots().weights;
  return std::accumulate(slots.begin(), slots.end(), std::int64_t{0});
}

std::int64_t gathered_bytes(const ModulePlan& plan, int order, int micro_batches) {
  std::int64_t sum = 0;
  for (const sharding::Task& task : plan.planned(Pass::train, order, micro_batches).schedule)
    if (task.action == sharding::Action::gather) sum += plan.problem().group(task.index).weight_slot_bytes();
  return sum;
}

/// Two alternating orders that use the units in different sequence, with fixed slots and steps of 1 to 3 micro-batches.
PassPlan passes() {
  return {.orders = {chain(5), mirrored({4, 2, 0, 3, 1})}, .micro_batches = 3, .fewer = true, .fixed_slots = true};
}

TEST(ModuleResidency, CountsAllOrdersAndStaysWithinTheBudgetInAllPasses) {
  const std::int64_t least = slot_bytes(planned({}, passes()));
  std::int64_t before = gathered_bytes(planned({}, passes()), 0, 3) + gathered_bytes(planned({}, passes()), 1, 3);
  const std::int64_t plain = before;
  for (std::int64_t budget = least; budget <= 5 * 512; budget += 128) {
    const ModulePlan plan = planned({.budget = budget}, passes());
    const sharding::Residency& found = plan.residency();
    EXPECT_EQ(found.gathered_bytes, gathered_bytes(plan, 0, 3) + gathered_bytes(plan, 1, 3));
    EXPECT_EQ(found.slot_bytes, slot_bytes(plan));
    EXPECT_LE(slot_bytes(plan), budget);
    EXPECT_LE(found.gathered_bytes, before) << budget;
    EXPECT_TRUE(found.exhaustive);
    before = found.gathered_bytes;
    EXPECT_EQ(plan.planned(Pass::train, 1, 2).problem.holds, found.holds);
    EXPECT_EQ(plan.planned(Pass::evaluate, 0, 1).problem.holds, found.holds);
  }
  EXPECT_EQ(before, 2 * 2 * 832) << "everything is gathered once a step, by each order";
  EXPECT_LT(before, plain);
}

TEST(ModuleResidency, AppliesToTrainingAndEvaluation) {
  EXPECT_TRUE(planned({}, {}).residency().holds.empty());
  EXPECT_TRUE(planned({.budget = 1}, {.purpose = Purpose::generate}).residency().holds.empty());
  EXPECT_INPUT_ERROR(planned({.budget = 1}, {.purpose = Purpose::evaluate}),
                     "a budget of 1 bytes for gathered weights");
  EXPECT_INPUT_ERROR(planned({.budget = memory_left}, {}), "give bytes, as in budget=512MiB");
}

}  // namespace
}  // namespace fsdp

// SPDX-License-Identifier: Apache-2.0
// A module's plan within a budget: all its passes share the slots.
#include <tessera/fsdp/module/module_plan.hpp>

#include <numeric>

#include <gtest/gtest.h>

#include <support/temporary_folder.hpp>
#include <tessera/fsdp/sharding/schedule_of.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp {
namespace {

using sharding::Pass;

/// Units of 64, 256, 192, 256 and 64 elements, on 4 ranks; weights of 2 bytes.
ModulePlan planned(const FullyShard<>& strategy, const PassPlan& passes) {
  std::vector<Unit> units;
  for (const std::int64_t rows : {8, 32, 24, 32, 8}) {
    const std::string name = "unit " + std::to_string(units.size());
    units.push_back({.name = name, .parameters = {{name, {rows, 8}}}});
  }
  ModulePlan plan(units, passes, sharding::facts_of(strategy), {.shard = 4}, 4, true);
  for (const GroupedParameters& group : plan.grouped()) {
    sharding::GroupFacts facts = facts_of(group, sharding::facts_of(strategy), true);
    facts.slot_elements = facts.elements;
    plan.add(facts);
  }
  plan.make_schedules([strategy](const sharding::Problem& problem) { return schedule_of(strategy, problem); }, 2);
  return plan;
}

std::int64_t slot_bytes(const ModulePlan& plan) {
  const std::vector<std::int64_t>& slots = plan.slots().weights;
  return 2 * std::accumulate(slots.begin(), slots.end(), std::int64_t{0});
}

std::int64_t gathered_bytes(const ModulePlan& plan, int order, int micro_batches) {
  std::int64_t sum = 0;
  for (const sharding::Task& task : plan.planned(Pass::train, order, micro_batches).schedule)
    if (task.action == sharding::Action::gather) sum += 2 * plan.problem().group(task.index).slot_elements;
  return sum;
}

/// Two orders that are trained in turn, and take the slots in other orders, with slots that stay, and steps of 1 to 3
/// micro-batches.
PassPlan passes() {
  return {.orders = {chain(5), mirrored({4, 2, 0, 3, 1})}, .micro_batches = 3, .fewer = true, .fixed_slots = true};
}

TEST(ModuleResidency, CountsAllOrdersAndStaysInTheBudgetInAllPasses) {
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

TEST(ModuleResidency, IsForTrainingAndEvaluating) {
  EXPECT_TRUE(planned({}, {}).residency().holds.empty());
  EXPECT_TRUE(planned({.budget = 1}, {.purpose = Purpose::generate}).residency().holds.empty());
  EXPECT_INPUT_ERROR(planned({.budget = 1}, {.purpose = Purpose::evaluate}),
                     "a budget of 1 bytes for gathered weights");
  EXPECT_INPUT_ERROR(planned({.budget = memory_left}, {}), "give bytes, as in budget=512MiB");
}

}  // namespace
}  // namespace fsdp

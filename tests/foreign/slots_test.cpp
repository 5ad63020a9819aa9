// SPDX-License-Identifier: Apache-2.0
// With fixed slots, a group's weights and gradients are always in the same memory, for any order.
#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include <gtest/gtest.h>
#include <range/v3/view/enumerate.hpp>

#include <tessera/fsdp/sharding/check.hpp>
#include <tessera/fsdp/sharding/slots.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

#include "runs.hpp"

namespace fsdp::foreign {
namespace {

using sharding::Action;
using sharding::Problem;
using sharding::Schedule;
using sharding::Task;

/// Random numbers from 0 to `below` - 1.
class Random {
 public:
  explicit Random(unsigned start) : engine_(start) {}
  int operator()(int below) { return static_cast<int>(engine_() % static_cast<unsigned>(below)); }

 private:
  std::minstd_rand engine_;
};

/// Returns an order in which units may be used repeatedly or never, with or without a head.
Order random_order(Random& random, int units) {
  std::vector<int> uses(static_cast<std::size_t>(1 + random(2 * units)));
  std::ranges::generate(uses, [&] { return random(units); });
  return random(2) == 0 ? mirrored(uses) : mirrored(uses, random(units));
}

/// Returns units with one group each; some units share an additional group, and some groups are frozen.
Problem random_problem(Random& random, Order order, int units) {
  Problem problem;
  problem.micro_batches = 1 + random(3);
  problem.overlap = random(2) == 0;
  problem.order = std::move(order.list);
  problem.fixed_slots = true;
  for (int unit = 0; unit < units; ++unit) {
    problem.units.push_back({.groups = {unit}, .backward_needs_weights = random(5) != 0});
    const std::int64_t elements = 10 + random(90);
    problem.groups.push_back(
        {.trainable = random(5) != 0, .elements = elements, .slot_elements = elements, .axes = {.shard = 2}});
  }
  problem.groups.push_back({.elements = 50, .slot_elements = 50, .axes = {.shard = 2}});  // tied
  for (sharding::UnitUse& unit : problem.units)
    if (random(3) == 0) unit.groups.push_back(units);
  return problem;
}

std::vector<sharding::Rules> all_rules(int depth) {
  return {FullyShard<>{.prefetch_depth = depth}.rules(),
          FullyShard<ReshardAfterForward::no>{.prefetch_depth = depth}.rules(),
          FullyShard<>{.prefetch_depth = depth, .reduce = ReduceGradients::last_micro_batch}.rules(), Zero2{}.rules(),
          Zero1{}.rules()};
}

/// Returns the slots that each group occupies in tasks of this action.
std::map<int, std::set<int>> slots_by_group(const Schedule& placed, Action takes) {
  std::map<int, std::set<int>> slots;
  for (const Task& task : placed)
    if (task.action == takes) slots[task.index].insert(task.slot);
  return slots;
}

/// Expects that no slot is occupied by two groups at once.
void expect_one_holder(const Schedule& placed) {
  std::map<int, int> weights, gradients;
  for (const Task& task : placed) {
    if (task.slot < 0) continue;
    std::map<int, int>& holders = sharding::has_weight_slot(task.action) ? weights : gradients;
    if (task.action == Action::release || task.action == Action::close_gradient) {
      EXPECT_EQ(holders[task.slot], task.index);
      holders.erase(task.slot);
    } else {
      EXPECT_TRUE(holders.emplace(task.slot, task.index).second) << "slot " << task.slot;
    }
  }
}

TEST(FixedSlots, AGroupHasTheSameSlotInEveryUseForAnyOrder) {
  Random random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const int units = 1 + random(7);
    const Problem problem = random_problem(random, random_order(random, units), units);
    for (const int depth : {0, 1, 2, 3})
      for (const sharding::Rules& rules : all_rules(depth)) {
        SCOPED_TRACE(message("trial ", trial, ", prefetch depth ", depth));
        const Schedule placed = sharding::checked_and_placed(sharding::schedule_from(rules, problem), problem);
        for (const Action takes : {Action::gather, Action::open_gradient})
          for (const auto& [group, slots] : slots_by_group(placed, takes)) EXPECT_EQ(slots.size(), 1u) << group;
        expect_one_holder(placed);
        if (::testing::Test::HasFailure()) return;
      }
  }
}

std::int64_t elements_of(const std::vector<std::int64_t>& slots) {
  return std::accumulate(slots.begin(), slots.end(), std::int64_t{0});
}

/// A chain of units of the same size.
Problem chain_problem(int units, bool overlap) {
  Problem problem;
  problem.micro_batches = 2;
  problem.overlap = overlap;
  problem.order = chain(units).list;
  for (int unit = 0; unit < units; ++unit) {
    problem.units.push_back({.groups = {unit}});
    problem.groups.push_back({.elements = 100, .slot_elements = 100, .axes = {.shard = 2}});
  }
  return problem;
}

TEST(FixedSlots, TakeNoMoreMemoryInAChainOfUnits) {
  for (const int units : {1, 2, 3, 4, 5, 6, 7, 8, 13})
    for (const int depth : {0, 1, 2, 3})
      for (const sharding::Rules& rules : all_rules(depth))
        for (const bool overlap : {false, true}) {
          Problem problem = chain_problem(units, overlap);
          const Schedule list = sharding::schedule_from(rules, problem);
          const auto free = sharding::slot_sizes(sharding::assign_slots(list, problem), problem);
          problem.fixed_slots = true;
          const auto fixed = sharding::slot_sizes(sharding::assign_slots(list, problem), problem);
          EXPECT_LE(elements_of(fixed.weights), elements_of(free.weights)) << units << " units, depth " << depth;
          // Gradients of adjacent units overlap, including those of the last and the first unit: a ring of odd length
          // needs three slots.
          const bool odd_ring = overlap && units % 2 == 1 && units > 1;
          EXPECT_LE(elements_of(fixed.gradients), elements_of(free.gradients) + (odd_ring ? 100 : 0))
              << units << " units, depth " << depth;
        }
}

TEST(FixedSlots, WithoutThemDeepPrefetchChangesTheSlotOfAGroup) {
  const Problem problem = chain_problem(6, false);
  const Schedule placed =
      sharding::assign_slots(sharding::schedule_from(FullyShard<>{.prefetch_depth = 3}.rules(), problem), problem);
  const auto slots = slots_by_group(placed, Action::gather);
  EXPECT_TRUE(std::ranges::any_of(slots, [](const auto& group) { return group.second.size() > 1; }));
}

/// Units with one or two tensors; every third unit also has a tensor that these units share.
std::vector<Unit> small_units(Random& random, int count) {
  std::vector<Unit> units(static_cast<std::size_t>(count));
  for (const auto& [i, unit] : ranges::views::enumerate(units)) {
    unit.name = message("unit ", i);
    unit.parameters.push_back({.name = message("w", i), .shape = {3 + random(20), 2}});
    if (i % 3 == 2) unit.parameters.push_back({.name = "tied", .shape = {11}});
  }
  return units;
}

/// An order that contains the backward of every unit, so that all units can be trained.
Order covering_order(Random& random, int units) {
  std::vector<int> uses(static_cast<std::size_t>(units));
  std::iota(uses.begin(), uses.end(), 0);
  for (int extra = random(2 * units); extra > 0; --extra) uses.insert(uses.begin() + random(units), random(units));
  return random(2) == 0 ? mirrored(uses) : mirrored(uses, random(units));
}

TEST(FixedSlots, ViewsKeepTheirAddressesInAllUsesOfAPass) {
  Random random(2);
  for (int trial = 0; trial < 24; ++trial) {
    const int units = 2 + random(6);
    const std::vector<Unit> list = small_units(random, units);
    const Order order = covering_order(random, units);
    const RunTimeAny strategies[] = {{FullyShard<>{.prefetch_depth = trial % 4}},
                                     {Zero3{.prefetch_depth = trial % 4, .persistence_threshold = 20}},
                                     {Zero2{}}};
    const RunTimeAny& strategy = strategies[trial % 3];
    SCOPED_TRACE(message("trial ", trial, ", ", policy_text(strategy)));
    on_ranks(2, [&](Comm& communicator) {
      Fsdp2 sharded(communicator, list, strategy, {.orders = {order}, .micro_batches = 2});
      sharded.initialize(seed);
      std::map<std::string, const float*> weights, gradients;
      auto pass = sharded.train();
      const auto expect_first = [](auto& known, const std::string& name, const float* data) {
        EXPECT_EQ(known.emplace(name, data).first->second, data) << name;
      };
      while (pass.next()) {
        auto use = pass.enter();
        const auto& parameters = list[static_cast<std::size_t>(use.task().index)].parameters;
        for (const auto& [i, parameter] : ranges::views::enumerate(parameters)) {
          expect_first(weights, parameter.name, use.weight(i).data());
          if (use.task().action != Action::forward) expect_first(gradients, parameter.name, use.zeroed(i).data());
        }
      }
      pass.finish();
      sharded.step(0, {.lr = lr});
    });
  }
}

}  // namespace
}  // namespace fsdp::foreign

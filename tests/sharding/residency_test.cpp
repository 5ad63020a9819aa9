// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/slots.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <random>

#include <gtest/gtest.h>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/zip.hpp>

#include <support/problems.hpp>
#include <support/sanitizer.hpp>
#include <support/temporary_folder.hpp>
#include <tessera/fsdp/sharding/check.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp::sharding {
namespace {

using namespace test;

/// The training step of a model and its evaluation, which uses the same slots.
struct Passes {
  Problem step;
  Rules rules = {};
  bool has_parts = false;  ///< whether groups have the holds of their own strategies

  Problem evaluation() const {
    Problem problem = step;
    problem.pass = Pass::evaluate;
    problem.micro_batches = 1;
    return problem;
  }
  Schedule schedule(const Problem& problem) const {
    return has_parts ? schedule_of_groups(rules, problem) : schedule_from(rules, problem);
  }
  Residency within(std::int64_t budget) const {
    const auto schedule_of = [this](const Problem& problem) { return schedule(problem); };
    const Problem other = evaluation();
    return choose_residency(schedule_of, {&step, 1}, {&other, 1}, budget);
  }

  struct Cost {
    std::int64_t slots = 0, gathered = 0;
  };
  /// The cost of a choice, computed from the schedules.
  Cost cost(const std::vector<Hold>& holds) const {
    Cost cost;
    SlotSizes sizes;
    for (Problem problem : {step, evaluation()}) {
      problem.holds = holds;
      const Schedule placed = checked_and_placed(schedule(problem), problem);
      sizes = largest(sizes, slot_sizes(placed, problem));
      if (problem.pass == Pass::train)
        for (const Task& task : placed)
          if (task.action == Action::gather) cost.gathered += problem.group(task.index).weight_slot_bytes();
    }
    cost.slots = std::accumulate(sizes.weights.begin(), sizes.weights.end(), std::int64_t{0});
    return cost;
  }
};

/// A model whose groups have these numbers of elements: the embedding, the blocks, the head.
Passes model(const std::vector<std::int64_t>& elements, int micro_batches, bool tied = false) {
  std::vector<UnitUse> units(elements.size());
  for (const auto& [unit, use] : ranges::views::enumerate(units)) use.groups = {static_cast<int>(unit)};
  units.front().backward_needs_weights = false;
  if (tied) units.back().groups.push_back(0);
  Passes passes{.step = problem_of(std::move(units), micro_batches)};
  for (const auto& [group, count] : ranges::views::zip(passes.step.groups, elements))
    group = {.elements = count, .slot_elements = count, .axes = {.shard = 4}};
  return passes;
}

/// Calls f(holds) for every possible choice.
template <class F>
void each_choice(std::vector<Hold>& holds, std::size_t group, const F& f) {
  if (group == holds.size()) return f(holds);
  for (const Hold hold : {Hold::use, Hold::micro_batch, Hold::step}) {
    holds[group] = hold;
    each_choice(holds, group + 1, f);
  }
}

TEST(Residency, IsOptimalForRandomSizesBudgetsAndMicroBatches) {
  std::mt19937 random(1);
  const auto below = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  int refused = 0, longer = 0;
  for (int trial = 0; trial < (fsdp::test::sanitized ? 40 : 150); ++trial) {
    std::vector<std::int64_t> elements(static_cast<std::size_t>(3 + below(3)));
    std::ranges::generate(elements, [&] { return 1 + below(9); });
    Passes passes = model(elements, 1 + below(3), below(3) == 0);
    passes.step.overlap = below(2) == 0;
    passes.step.fixed_slots = below(3) == 0;
    passes.step.groups.back().persistent = below(4) == 0;
    passes.rules.prefetch_depth = below(3);
    const std::int64_t all = std::accumulate(elements.begin(), elements.end(), std::int64_t{0});
    std::vector<Hold> holds(elements.size());
    for (Hold& hold : holds) hold = static_cast<Hold>(below(3));
    const std::int64_t budget =
        trial % 3 == 0 ? all / 3 + below(static_cast<int>(all)) : passes.cost(holds).slots - (trial % 3 - 1);

    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    each_choice(holds, 0, [&](const std::vector<Hold>& choice) {
      const Passes::Cost cost = passes.cost(choice);
      if (cost.slots <= budget) least = std::min(least, cost.gathered);
    });
    if (least == std::numeric_limits<std::int64_t>::max()) {
      EXPECT_THROW(passes.within(budget), InputError);
      ++refused;
      continue;
    }
    const Residency found = passes.within(budget);
    EXPECT_EQ(found.gathered_bytes, least) << "trial " << trial;
    EXPECT_EQ(passes.cost(found.holds).gathered, found.gathered_bytes);
    EXPECT_EQ(passes.cost(found.holds).slots, found.slot_bytes);
    EXPECT_LE(found.slot_bytes, budget);
    EXPECT_TRUE(found.exhaustive);
    longer += std::ranges::count(found.holds, Hold::use) < std::ssize(found.holds);
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(longer, 10);
}

/// With a prefetch depth of one, two slots serve single uses. Each additional slot keeps a block for the whole step,
/// which then needs one gather per step instead of two per micro-batch; the last block, the embedding and the head
/// have one gather per micro-batch. Once no two adjacent units share the slots for uses, one such slot suffices, and
/// the other keeps one of the latter units.
std::int64_t gathers_of_equal_units(std::int64_t blocks, std::int64_t micro_batches, std::int64_t slots) {
  const std::int64_t units = blocks + 2;
  if (slots >= units) return units;
  const std::int64_t held = slots - 2, twice = std::min(held, blocks - 1);
  const std::int64_t apart = 2 + (blocks - 1) / 2;  // embedding, head, and every second block between them
  return (units + blocks - 1) * micro_batches - twice * (2 * micro_batches - 1) -
         (held - twice + (units - slots + 1 <= apart)) * (micro_batches - 1);
}

TEST(Residency, OfEqualUnitsMatchesTheClosedForm) {
  using Blocks = std::vector<std::int64_t>;  // with 4 blocks the search is exhaustive
  for (const std::int64_t blocks : fsdp::test::sanitized ? Blocks{4, 10} : Blocks{4, 10, 20})
    for (const int micro_batches : {1, 2, 3})
      for (std::int64_t slots = 2; slots <= blocks + 3; ++slots) {
        const Passes passes = model(std::vector<std::int64_t>(static_cast<std::size_t>(blocks + 2), 7), micro_batches);
        const Residency found = passes.within(7 * slots + 6);
        EXPECT_EQ(found.gathered_bytes, 7 * gathers_of_equal_units(blocks, micro_batches, slots))
            << blocks << " blocks, " << micro_batches << " micro-batches, " << slots << " slots";
        EXPECT_LE(found.slot_bytes, 7 * slots);
        EXPECT_LE(found.bound_bytes, found.gathered_bytes);
      }
}

TEST(Residency, OfManyUnitsFitsTheBudgetAndRespectsTheLowerBound) {
  std::mt19937 random(2);
  for (int trial = 0; trial < (fsdp::test::sanitized ? 2 : 6); ++trial) {
    std::vector<std::int64_t> elements(26);
    std::ranges::generate(elements, [&] { return 90 + static_cast<int>(random() % 20); });
    elements.front() = 400, elements.back() = 410;
    const Passes passes = model(elements, 1 + trial % 3);
    std::int64_t before = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t budget : {820, 1400, 2000, 2600, 4000}) {
      const Residency found = passes.within(budget);
      EXPECT_EQ(passes.cost(found.holds).gathered, found.gathered_bytes);
      EXPECT_EQ(passes.cost(found.holds).slots, found.slot_bytes);
      EXPECT_LE(found.slot_bytes, budget);
      EXPECT_LE(found.bound_bytes, found.gathered_bytes);
      EXPECT_LE(found.gathered_bytes, before);
      before = found.gathered_bytes;
    }
    EXPECT_TRUE(passes.within(4000).exhaustive) << "everything is held: the bound is attained";
  }
}

/// Two large units are never adjacent in the step, but are adjacent in the other pass.
TEST(Residency, StaysWithinTheBudgetInAllPassesThatUseTheSlots) {
  const Passes passes = model({1, 9, 1, 9, 1}, 1);
  Problem other = passes.evaluation();
  for (const int unit : {1, 3, 0, 2}) other.order.push_back({.action = Action::forward, .unit = unit});
  other.order.push_back({.action = Action::loss, .unit = 4});
  const auto schedule_of = [&](const Problem& problem) { return passes.schedule(problem); };
  EXPECT_EQ(choose_residency(schedule_of, {&passes.step, 1}, {}, 10).slot_bytes, 10);
  EXPECT_THROW(choose_residency(schedule_of, {&passes.step, 1}, {&other, 1}, 17), InputError);
  EXPECT_EQ(choose_residency(schedule_of, {&passes.step, 1}, {&other, 1}, 18).slot_bytes, 18);
}

TEST(Residency, GathersNoMoreThanAUniformHoldWithTheSameMemory) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<std::int64_t> elements(trial % 2 == 0 ? 5 : 16);
    std::ranges::generate(elements, [&] { return 1 + static_cast<int>(random() % 60); });
    const Passes passes = model(elements, 1 + trial % 4);
    for (const Hold hold : {Hold::use, Hold::micro_batch, Hold::step}) {
      const Passes::Cost alike = passes.cost(std::vector<Hold>(elements.size(), hold));
      EXPECT_LE(passes.within(alike.slots).gathered_bytes, alike.gathered) << "trial " << trial;
      EXPECT_LE(passes.within(alike.slots).slot_bytes, alike.slots);
    }
  }
}

TEST(Residency, RefusesABudgetBelowOneUnitAndReportsTheMinimum) {
  const Passes passes = model({5, 9, 9, 5}, 1);
  EXPECT_INPUT_ERROR(passes.within(17),
                     "a budget of 17 bytes for gathered weights is too small; 18 would do, or cut the model");
  EXPECT_EQ(passes.within(18).slot_bytes, 18);
}

/// Units have parts with and without fixed holds, and weights of one or two bytes.
TEST(Residency, ReportsTheMinimumOfStrategiesPerUnit) {
  std::mt19937 random(4);
  const auto below = [&](auto count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  for (int trial = 0; trial < (fsdp::test::sanitized ? 10 : 400); ++trial) {
    SCOPED_TRACE(trial);
    std::vector<std::int64_t> elements(static_cast<std::size_t>(3 + below(3)));
    std::ranges::generate(elements, [&] { return 1 + below(9); });
    Passes passes = model(elements, 1 + below(2), below(3) == 0);
    passes.has_parts = true;
    const bool mixed = below(2) == 0;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      GroupFacts& group = passes.step.groups[i];
      group.hold = below(4) == 0 ? Hold::step : below(4) == 0 ? Hold::micro_batch : Hold::use;
      group.bytes_per_weight = mixed ? 1 + below(2) : 1;
      std::vector<int>& other = passes.step.units[static_cast<std::size_t>(below(std::ssize(elements)))].groups;
      if (below(2) == 0 && std::ranges::count(other, static_cast<int>(i)) == 0) other.push_back(static_cast<int>(i));
      std::ranges::sort(other);
    }
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::vector<Hold> holds(elements.size());
    each_choice(holds, 0, [&](const auto& choice) { least = std::min(least, passes.cost(choice).slots); });
    EXPECT_INPUT_ERROR(passes.within(least - 1), message("is too small; ", least, " would do"));
    EXPECT_EQ(passes.within(least).slot_bytes, least);
  }
}

TEST(Residency, RefusesABudgetTogetherWithALiveBound) {
  Passes passes = model({5, 9, 9, 5}, 1);
  passes.rules.live_bound = 100;
  EXPECT_INPUT_ERROR(passes.within(100), "a bound of 100 live elements and a budget for gathered weights both say");
}

TEST(Budget, IsRefusedForStrategiesThatFixHowLongWeightsAreKept) {
  EXPECT_INPUT_ERROR(facts_of(FullyShard<ReshardAfterForward::no>{.budget = 1}), "leave the budget out");
  EXPECT_EQ(facts_of(FullyShard<>{.budget = 5}).budget, 5);
  EXPECT_EQ(facts_of(Reproducible<Zero3>{{.budget = 5}, 8}).budget, 5);
  EXPECT_EQ(facts_of(Offload<HybridShard<FullyShard<>>>{{.inner = {.budget = 5}}}).budget, 5);
  EXPECT_EQ(facts_of(WithLayout<FullyShard<>, buffer::Flat>{{.budget = 5}}).budget, 5);
}

}  // namespace
}  // namespace fsdp::sharding

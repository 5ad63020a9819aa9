// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/schedule.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <support/errors.hpp>
#include <support/problems.hpp>
#include <tessera/fsdp/sharding/check.hpp>
#include <tessera/fsdp/sharding/check_schedule.hpp>
#include <tessera/fsdp/sharding/event_order.hpp>
#include <tessera/fsdp/sharding/slot_assigner.hpp>
#include <tessera/fsdp/sharding/slots.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp::sharding {
namespace {

using namespace test;

std::string text_of_stages(const Stages& stages) {
  std::string text;
  for (const Stage& stage : stages_of(stages)) {
    if (stage == stages_of(stages)[static_cast<std::size_t>(first_backward_stage(stages))]) text += "| ";
    text += std::string(name_of(stage.step)) + " " + std::to_string(stage.part) + " ";
  }
  return text;
}

TEST(Stages, OnePartHasOneExchangeInEachDirection) {
  EXPECT_EQ(text_of_stages({.parts = 1}),
            "before 0 to-heads 0 between 0 to-rows 0 after 0 | after-backward 0 gradient-to-heads 0 between-backward 0 "
            "gradient-to-rows 0 before-backward 0 ");
}

TEST(Stages, ThreePartsOverlapAndAreReplayedInBackward) {
  const std::string middle =
      "before 0 to-heads 0 before 1 to-heads 1 between 0 to-rows 0 before 2 to-heads 2 between 1 to-rows 1 between 2 "
      "to-rows 2 ";
  EXPECT_EQ(text_of_stages({.parts = 3, .replays = true}),
            middle + "after 0 | " + middle +
                "after-backward 0 gradient-to-heads 0 gradient-to-heads 1 between-backward 0 gradient-to-rows 0 "
                "gradient-to-heads 2 between-backward 1 gradient-to-rows 1 before-backward 0 between-backward 2 "
                "gradient-to-rows 2 before-backward 1 before-backward 2 ");
}

/// Three blocks with stages between an embedding and a head without stages.
constexpr std::vector<UnitUse> staged_blocks(const Stages& stages) {
  std::vector<UnitUse> units = three_blocks();
  for (std::size_t block = 1; block <= 3; ++block) units[block].stages = stages;
  return units;
}
template <class Strategy = FullyShard<>>
constexpr Schedule staged(const Problem& problem, Strategy strategy = {}) {
  return detail::with_exchanges(make_schedule(strategy.rules(), problem), problem);
}

/// Keeps the tasks on weight groups and one computation per unit.
Schedule without_stages(const Schedule& schedule, const Problem& problem) {
  Schedule list;
  for (Task task : schedule) {
    if (task.action == Action::exchange || (computes(task.action) && !problem.begins(task))) continue;
    task.stage = 0;
    list.push_back(task);
  }
  return list;
}
/// Lists only the tasks on weight groups, without computations.
std::vector<std::string> on_groups(const Schedule& schedule) {
  std::vector<std::string> list;
  for (const Task& task : schedule)
    if (!computes(task.action)) list.push_back(test::text_of({task}));
  return list;
}

template <class Strategy>
void expect_same_weights_moved(Strategy strategy) {
  for (const Stages& stages : {Stages{.parts = 1}, Stages{.parts = 1, .replays = true}, Stages{.parts = 4}})
    for (const int micro_batches : {1, 2})
      for (const Pass pass : {Pass::train, Pass::evaluate}) {
        Problem whole = problem_for(strategy, three_blocks(), micro_batches, pass);
        Problem problem = problem_for(strategy, staged_blocks(stages), micro_batches, pass);
        whole.overlap = problem.overlap = true;
        for (Problem* each : {&whole, &problem})
          for (GroupFacts& group : each->groups) group.slot_elements = group.resident ? 0 : 1;
        const Schedule list = staged(problem, strategy);
        EXPECT_EQ(on_groups(without_stages(list, problem)), on_groups(make_schedule(strategy.rules(), whole)));
        const Schedule placed = checked_and_placed(list, problem);
        EXPECT_EQ(first_race(placed, problem), Race{}) << test::text_of(placed);
        const SlotSizes sizes = slot_sizes(placed, problem);
        EXPECT_EQ(sizes, slot_sizes(checked_and_placed(make_schedule(strategy.rules(), whole), whole), whole));
      }
}

TEST(Stages, LeaveGathersAndReductionsUnchanged) {
  expect_same_weights_moved(FullyShard<>{});
  expect_same_weights_moved(FullyShard<>{.prefetch_depth = 0});
  expect_same_weights_moved(FullyShard<>{.prefetch_depth = 3});
  expect_same_weights_moved(FullyShard<ReshardAfterForward::no>{});
  expect_same_weights_moved(FullyShard<ReshardAfterForward::to_group>{.group = 2});
  expect_same_weights_moved(Zero1{});
  expect_same_weights_moved(Zero2{});
  expect_same_weights_moved(Zero3{});
  expect_same_weights_moved(HybridShard<FullyShard<>>{});
  expect_same_weights_moved(Replicated{});
}

/// Exchanges of a step: 2 per part in forward, 2 in backward, and 2 more if backward recomputes.
TEST(Stages, ExchangesPerStepMatchTheFormula) {
  for (const int parts : {1, 2, 3})
    for (const bool replays : {false, true}) {
      const Problem problem = problem_of(staged_blocks({.parts = parts, .replays = replays}), 2);
      const Schedule list = staged(problem);
      const auto count =
          std::count_if(list.begin(), list.end(), [](const Task& task) { return task.action == Action::exchange; });
      EXPECT_EQ(count, 2 * 3 * parts * (replays ? 6 : 4));
    }
}

constexpr Violation violation_of(void (*spoil)(Schedule&)) {
  const Problem problem = problem_of(staged_blocks({.parts = 2, .replays = true}), 1);
  Schedule list = staged(problem);
  spoil(list);
  return check_schedule(list, problem).violation;
}
constexpr Schedule::iterator exchange(Schedule& list, int n = 0) {
  return std::find_if(list.begin(), list.end(),
                      [&](const Task& task) { return task.action == Action::exchange && n-- == 0; });
}
static_assert(violation_of([](Schedule&) {}) == Violation::none);
static_assert(violation_of([](Schedule& list) { list.erase(exchange(list)); }) == Violation::not_exchanged);
static_assert(violation_of([](Schedule& list) { list.erase(exchange(list, 20)); }) == Violation::not_exchanged);
static_assert(violation_of([](Schedule& list) { exchange(list)->stage = 2; }) == Violation::exchanges_nothing);
static_assert(violation_of([](Schedule& list) { exchange(list)->stage = 99; }) == Violation::exchanges_nothing);
static_assert(violation_of([](Schedule& list) { exchange(list)->index = 3; }) == Violation::exchanges_nothing);
static_assert(violation_of([](Schedule& list) { exchange(list)->index = 9; }) == Violation::no_such_index);
static_assert(violation_of([](Schedule& list) { exchange(list)->stage = 3; }) == Violation::exchanged_early);
static_assert(violation_of([](Schedule& list) { list.insert(exchange(list), *exchange(list)); }) ==
              Violation::exchanged_twice);
static_assert(violation_of([](Schedule& list) {
                for (Task& task : list)
                  if (computes(task.action) && task.stage == 2) task.stage = 0;
              }) == Violation::computed_out_of_order);

TEST(Stages, ErrorsIdentifyTheStage) {
  const Problem problem = problem_of(staged_blocks({.parts = 1}), 1);
  Schedule list = staged(problem);
  list.erase(exchange(list));
  EXPECT_INPUT_ERROR(check(list, problem, (Names{.units = {"embedding", "block 0"}, .groups = {}})),
                     "forward block 0 between 0: it reads what exchange block 0 to-heads 0 of micro-batch 0 brings; "
                     "exchange it before");
}

}  // namespace
}  // namespace fsdp::sharding

// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/scheduler.hpp>

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include <support/problems.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp::sharding {
namespace {

using namespace test;

constexpr std::int64_t count(const Schedule& schedule, Action action) {
  return std::count_if(schedule.begin(), schedule.end(), [&](const Task& task) { return task.action == action; });
}

static_assert(count(list(FullyShard<>{}, three_blocks(), 1), Action::gather) == 7);
static_assert(count(list(Replicated{}, three_blocks(), 2), Action::gather) == 0);
static_assert(list(Zero3{}, three_blocks(), 2).back() == Task{.action = Action::reduce, .index = 0, .micro_batch = 1});

template <class Strategy>
std::string training(int micro_batches, Strategy strategy = {}) {
  return text_of(list(strategy, three_blocks(), micro_batches));
}

/// The forward of three blocks whose weights are prefetched and released: in the first micro-batch of a step, and in
/// the second, whose first gather is in the preceding backward.
const std::string forward =
    "gather 0 gather 1 forward 0 release 0 "
    "gather 2 forward 1 release 1 "
    "gather 3 forward 2 release 2 "
    "gather 4 forward 3 ";
const std::string forward_of_second =
    "gather 1:1 forward 0:1 release 0:1 "
    "gather 2:1 forward 1:1 release 1:1 "
    "gather 3:1 forward 2:1 release 2:1 "
    "gather 4:1 forward 3:1 ";

const std::string resharded = forward +
                              "loss 4 release 4 reduce 4 "
                              "gather 2 backward 3 release 3 reduce 3 "
                              "gather 1 backward 2 release 2 reduce 2 "
                              "backward 1 release 1 reduce 1 "
                              "backward 0 reduce 0";

const std::string resharded_twice = forward +
                                    "loss 4 release 4 reduce 4 "
                                    "gather 2 backward 3 release 3 reduce 3 "
                                    "gather 1 backward 2 release 2 reduce 2 "
                                    "backward 1 release 1 reduce 1 "
                                    "gather 0:1 backward 0 reduce 0 " +
                                    forward_of_second +
                                    "loss 4:1 release 4:1 reduce 4:1 "
                                    "gather 2:1 backward 3:1 release 3:1 reduce 3:1 "
                                    "gather 1:1 backward 2:1 release 2:1 reduce 2:1 "
                                    "backward 1:1 release 1:1 reduce 1:1 "
                                    "backward 0:1 reduce 0:1";

TEST(Schedule, FullyShardPrefetchesAndSkipsTheEmbeddingInBackward) {
  EXPECT_EQ(training<FullyShard<ReshardAfterForward::yes>>(1), resharded);
}

TEST(Schedule, FullyShardGathersTheNextMicroBatchDuringTheLastBackward) {
  EXPECT_EQ(training<FullyShard<ReshardAfterForward::yes>>(2), resharded_twice);
}

TEST(Schedule, Zero3HasTheScheduleOfFullyShard) {
  EXPECT_EQ(training<Zero3>(1), resharded);
  EXPECT_EQ(training<Zero3>(2), resharded_twice);
}

TEST(Schedule, WithoutReshardingEveryGroupIsGatheredOncePerMicroBatch) {
  using Kept = FullyShard<ReshardAfterForward::no>;
  EXPECT_EQ(training<Kept>(1),
            "gather 0 gather 1 forward 0 release 0 "
            "gather 2 forward 1 "
            "gather 3 forward 2 "
            "gather 4 forward 3 "
            "loss 4 release 4 reduce 4 "
            "backward 3 release 3 reduce 3 "
            "backward 2 release 2 reduce 2 "
            "backward 1 release 1 reduce 1 "
            "backward 0 reduce 0");
  EXPECT_EQ(training<Kept>(2),
            "gather 0 gather 1 forward 0 release 0 "
            "gather 2 forward 1 "
            "gather 3 forward 2 "
            "gather 4 forward 3 "
            "loss 4 release 4 reduce 4 "
            "backward 3 release 3 reduce 3 "
            "backward 2 release 2 reduce 2 "
            "backward 1 release 1 reduce 1 "
            "gather 0:1 backward 0 reduce 0 "
            "gather 1:1 forward 0:1 release 0:1 "
            "gather 2:1 forward 1:1 "
            "gather 3:1 forward 2:1 "
            "gather 4:1 forward 3:1 "
            "loss 4:1 release 4:1 reduce 4:1 "
            "backward 3:1 release 3:1 reduce 3:1 "
            "backward 2:1 release 2:1 reduce 2:1 "
            "backward 1:1 release 1:1 reduce 1:1 "
            "backward 0:1 reduce 0:1");
}

TEST(Schedule, ReplicatedGathersNothingAndReducesOnTheLastMicroBatchOnly) {
  EXPECT_EQ(training<Replicated>(1),
            "forward 0 forward 1 forward 2 forward 3 loss 4 reduce 4 backward 3 reduce 3 backward 2 reduce 2 backward "
            "1 reduce 1 "
            "backward 0 reduce 0");
  EXPECT_EQ(training<Replicated>(2),
            "forward 0 forward 1 forward 2 forward 3 loss 4 backward 3 backward 2 backward 1 backward 0 "
            "forward 0:1 forward 1:1 forward 2:1 forward 3:1 loss 4:1 reduce 4:1 backward 3:1 reduce 3:1 backward 2:1 "
            "reduce 2:1 "
            "backward 1:1 reduce 1:1 backward 0:1 reduce 0:1");
}

TEST(Schedule, Zero1GathersOncePerStepAndReducesTheLastMicroBatchOnly) {
  EXPECT_EQ(training<Zero1>(1),
            "gather 0 gather 1 forward 0 gather 2 forward 1 gather 3 forward 2 gather 4 forward 3 "
            "loss 4 reduce 4 backward 3 reduce 3 backward 2 reduce 2 backward 1 reduce 1 "
            "backward 0 release 0 release 1 release 2 release 3 release 4 reduce 0");
  EXPECT_EQ(training<Zero1>(2),
            "gather 0 gather 1 forward 0 gather 2 forward 1 gather 3 forward 2 gather 4 forward 3 "
            "loss 4 backward 3 backward 2 backward 1 backward 0 "
            "forward 0:1 forward 1:1 forward 2:1 forward 3:1 "
            "loss 4:1 reduce 4:1 backward 3:1 reduce 3:1 backward 2:1 reduce 2:1 backward 1:1 reduce 1:1 "
            "backward 0:1 release 0:1 release 1:1 release 2:1 release 3:1 release 4:1 reduce 0:1");
}

TEST(Schedule, Zero2GathersOncePerStepAndReducesEveryMicroBatch) {
  EXPECT_EQ(training<Zero2>(2),
            "gather 0 gather 1 forward 0 gather 2 forward 1 gather 3 forward 2 gather 4 forward 3 "
            "loss 4 reduce 4 backward 3 reduce 3 backward 2 reduce 2 backward 1 reduce 1 backward 0 reduce 0 "
            "forward 0:1 forward 1:1 forward 2:1 forward 3:1 "
            "loss 4:1 reduce 4:1 backward 3:1 reduce 3:1 backward 2:1 reduce 2:1 backward 1:1 reduce 1:1 "
            "backward 0:1 release 0:1 release 1:1 release 2:1 release 3:1 release 4:1 reduce 0:1");
}

TEST(Schedule, ReshardingOverKRanksRegathersWithinTheGroup) {
  EXPECT_EQ(training(1, FullyShard<ReshardAfterForward::to_group>{.group = 2}),
            "gather 0 gather 1 forward 0 release 0 "
            "gather 2 forward 1 keep 1 release 1 "
            "gather 3 forward 2 keep 2 release 2 "
            "gather 4 forward 3 "
            "loss 4 release 4 reduce 4 "
            "gather-in-group 2 backward 3 release 3 reduce 3 "
            "gather-in-group 1 backward 2 release 2 reduce 2 "
            "backward 1 release 1 reduce 1 "
            "backward 0 reduce 0");
}

TEST(Schedule, HybridReducesAcrossGroupsOnTheLastMicroBatchOnly) {
  const HybridShard<FullyShard<>> hybrid{.group = 2};
  EXPECT_EQ(training(1, hybrid), forward +
                                     "loss 4 release 4 reduce 4 reduce-across 4 "
                                     "gather 2 backward 3 release 3 reduce 3 reduce-across 3 "
                                     "gather 1 backward 2 release 2 reduce 2 reduce-across 2 "
                                     "backward 1 release 1 reduce 1 reduce-across 1 "
                                     "backward 0 reduce 0 reduce-across 0");
  const Schedule twice = list(hybrid, three_blocks(), 2);
  EXPECT_EQ(count(twice, Action::reduce), 10);
  EXPECT_EQ(count(twice, Action::reduce_across), 5);
  for (const Task& task : twice) EXPECT_TRUE(task.action != Action::reduce_across || task.micro_batch == 1);
}

TEST(Schedule, HybridFullGathersAcrossGroupsAtTheFirstUseInAStep) {
  const HybridShard<FullyShard<>, OptimizerAcross::sharded> full{.group = 2};
  EXPECT_EQ(training(1, full),
            "gather-across 0 gather 0 gather-across 1 gather 1 forward 0 release 0 "
            "gather-across 2 gather 2 forward 1 release 1 "
            "gather-across 3 gather 3 forward 2 release 2 "
            "gather-across 4 gather 4 forward 3 "
            "loss 4 release 4 reduce 4 reduce-across 4 "
            "gather 2 backward 3 release 3 reduce 3 reduce-across 3 "
            "gather 1 backward 2 release 2 reduce 2 reduce-across 2 "
            "backward 1 release 1 reduce 1 reduce-across 1 "
            "backward 0 reduce 0 reduce-across 0");
  EXPECT_EQ(count(list(full, three_blocks(), 3), Action::gather_across), 5);
}

TEST(Schedule, DeferredReductionKeepsPartialSumsAndReducesOnce) {
  EXPECT_EQ(training(2, FullyShard<>{.reduce = ReduceGradients::last_micro_batch}),
            forward +
                "loss 4 release 4 "
                "gather 2 backward 3 release 3 "
                "gather 1 backward 2 release 2 "
                "backward 1 release 1 "
                "gather 0:1 backward 0 " +
                forward_of_second +
                "loss 4:1 release 4:1 reduce 4:1 "
                "gather 2:1 backward 3:1 release 3:1 reduce 3:1 "
                "gather 1:1 backward 2:1 release 2:1 reduce 2:1 "
                "backward 1:1 release 1:1 reduce 1:1 "
                "backward 0:1 reduce 0:1");
}

/// Group 5 contains the small tensors of block 1.
TEST(Schedule, PersistentTensorsAreGatheredOncePerStep) {
  std::vector<UnitUse> units = three_blocks();
  units[1].groups = {1, 5};
  std::vector<GroupFacts> groups(6);
  groups[5].persistent = true;
  EXPECT_EQ(text_of(make_schedule(Zero3{}.rules(), problem_of(units, groups, 1))),
            "gather 0 gather 1 gather 5 forward 0 release 0 "
            "gather 2 forward 1 release 1 "
            "gather 3 forward 2 release 2 "
            "gather 4 forward 3 "
            "loss 4 release 4 reduce 4 "
            "gather 2 backward 3 release 3 reduce 3 "
            "gather 1 backward 2 release 2 reduce 2 "
            "backward 1 release 1 reduce 1 reduce 5 "
            "backward 0 release 5 reduce 0");
}

/// Blocks 1 and 2 are frozen below a trainable third block: there is no backward below it, and no gather for one.
TEST(Schedule, FrozenUnitsBelowTheFirstTrainableOneHaveNoBackward) {
  std::vector<GroupFacts> groups(5);
  for (const int frozen : {0, 1, 2}) groups[static_cast<std::size_t>(frozen)].trainable = false;
  EXPECT_EQ(text_of(make_schedule(FullyShard<>{}.rules(), problem_of(three_blocks(), groups, 1))),
            forward +
                "loss 4 release 4 reduce 4 "
                "backward 3 release 3 reduce 3");
  EXPECT_EQ(first_backward(problem_of(three_blocks(), groups, 1)), 3);
}

/// A frozen unit above a trainable one still passes the gradient down.
TEST(Schedule, AFrozenUnitAboveATrainableOneHasABackwardAndNoReduction) {
  std::vector<GroupFacts> groups(5);
  for (const int frozen : {0, 3, 4}) groups[static_cast<std::size_t>(frozen)].trainable = false;
  EXPECT_EQ(text_of(make_schedule(FullyShard<>{}.rules(), problem_of(three_blocks(), groups, 1))),
            forward +
                "loss 4 release 4 "
                "gather 2 backward 3 release 3 "
                "gather 1 backward 2 release 2 reduce 2 "
                "backward 1 release 1 reduce 1");
}

/// Blocks 1 and 2 share group 1.
TEST(Schedule, BlocksOfOneUnitAreGatheredAndReducedTogether) {
  std::vector<UnitUse> units = three_blocks();
  units[2].groups = {1};
  units[3].groups = {2};
  units[4].groups = {3};
  EXPECT_EQ(text_of(list(FullyShard<>{}, units, 1)),
            "gather 0 gather 1 forward 0 release 0 "
            "forward 1 "
            "gather 2 forward 2 release 1 "
            "gather 3 forward 3 "
            "loss 4 release 3 reduce 3 "
            "gather 1 backward 3 release 2 reduce 2 "
            "backward 2 "
            "backward 1 release 1 reduce 1 "
            "backward 0 reduce 0");
}

TEST(Schedule, TheLastBlockCanBeReleasedBeforeTheHead) {
  const Rules rules = FullyShard<>{}.rules();
  const auto given_up = [&](int micro_batches) {
    Problem problem = problem_of(three_blocks(), micro_batches);
    for (GroupFacts& group : problem.groups) group.held_to_head = false;
    return make_schedule(rules, problem);
  };
  EXPECT_EQ(count(given_up(2), Action::gather), 2 * (5 + 3));
  EXPECT_EQ(text_of(given_up(1)).substr(0, 150),
            std::string("gather 0 gather 1 forward 0 release 0 gather 2 forward 1 release 1 gather 3 forward 2 release "
                        "2 gather 4 forward 3 release 3 gather 3 loss 4 release 4 reduce 4")
                .substr(0, 150));
}

/// The largest number of elements that are gathered at the same time in a schedule.
std::int64_t most_live(const Schedule& schedule, const std::vector<GroupFacts>& groups) {
  std::int64_t live = 0, most = 0;
  for (const Task& task : schedule) {
    const std::int64_t elements = computes(task.action) ? 0 : groups[static_cast<std::size_t>(task.index)].elements;
    if (task.action == Action::gather) live += elements;
    if (task.action == Action::release) live -= elements;
    most = std::max(most, live);
  }
  return most;
}

TEST(Schedule, ALiveBoundDelaysPrefetch) {
  const std::vector<GroupFacts> groups = {
      {.elements = 100}, {.elements = 40}, {.elements = 40}, {.elements = 40}, {.elements = 110}};
  for (const int depth : {0, 1, 2, 4})
    for (const std::int64_t bound : {110, 120, 150, 190, 1000}) {
      const Zero3 zero3{.prefetch_depth = depth, .live_bound = bound};
      const Schedule schedule = make_schedule(zero3.rules(), problem_of(three_blocks(), groups, 2));
      EXPECT_LE(most_live(schedule, groups), bound) << "depth " << depth;
      EXPECT_EQ(count(schedule, Action::release), count(schedule, Action::gather));
      EXPECT_EQ(count(schedule, Action::reduce), 10);
    }
  EXPECT_EQ(make_schedule(Zero3{.live_bound = 1000}.rules(), problem_of(three_blocks(), groups, 1)),
            make_schedule(Zero3{}.rules(), problem_of(three_blocks(), groups, 1)));
  EXPECT_EQ(most_live(make_schedule(Zero3{.prefetch_depth = 4}.rules(), problem_of(three_blocks(), groups, 1)), groups),
            330);
  EXPECT_THROW(make_schedule(Zero3{.live_bound = 109}.rules(), problem_of(three_blocks(), groups, 1)), InputError);
}

TEST(Schedule, ATiedTableIsGatheredOnceAndReducedOnceAfterItsLastGradient) {
  EXPECT_EQ(text_of(list(FullyShard<>{}, three_blocks_tied(), 1)),
            "gather 5 gather 1 forward 0 "
            "gather 2 forward 1 release 1 "
            "gather 3 forward 2 release 2 "
            "gather 4 forward 3 "
            "loss 4 release 4 release 5 reduce 4 "
            "gather 2 backward 3 release 3 reduce 3 "
            "gather 1 backward 2 release 2 reduce 2 "
            "backward 1 release 1 reduce 1 "
            "backward 0 reduce 5");
}

TEST(Schedule, EvaluationIsForwardOnly) {
  EXPECT_EQ(text_of(list(FullyShard<>{}, three_blocks(), 1, Pass::evaluate)),
            "gather 0 gather 1 forward 0 release 0 gather 2 forward 1 release 1 gather 3 forward 2 release 2 "
            "gather 4 forward 3 release 3 loss 4 release 4");
  EXPECT_EQ(text_of(list(Replicated{}, three_blocks(), 1, Pass::evaluate)),
            "forward 0 forward 1 forward 2 forward 3 loss 4");
  EXPECT_EQ(text_of(list(Zero1{}, three_blocks(), 1, Pass::evaluate)),
            "gather 0 gather 1 forward 0 gather 2 forward 1 gather 3 forward 2 gather 4 forward 3 "
            "loss 4 release 0 release 1 release 2 release 3 release 4");
}

TEST(Schedule, PrefetchDepthTwoGathersTwoComputationsAhead) {
  EXPECT_EQ(training(1, FullyShard<>{.prefetch_depth = 2}),
            "gather 0 gather 1 gather 2 forward 0 release 0 "
            "gather 3 forward 1 release 1 "
            "gather 4 forward 2 release 2 "
            "forward 3 "
            "gather 2 loss 4 release 4 reduce 4 "
            "gather 1 backward 3 release 3 reduce 3 "
            "backward 2 release 2 reduce 2 "
            "backward 1 release 1 reduce 1 "
            "backward 0 reduce 0");
}

TEST(Schedule, PrefetchDepthZeroGathersRightBeforeUse) {
  EXPECT_EQ(training(1, FullyShard<>{.prefetch_depth = 0}),
            "gather 0 forward 0 release 0 gather 1 forward 1 release 1 gather 2 forward 2 release 2 gather 3 forward 3 "
            "release 3 "
            "gather 4 loss 4 release 4 reduce 4 "
            "gather 3 backward 3 release 3 reduce 3 gather 2 backward 2 release 2 reduce 2 gather 1 backward 1 release "
            "1 reduce 1 "
            "backward 0 reduce 0");
}

TEST(Schedule, CountsOfGathersAndReductionsMatchTheFormula) {
  for (const int micro_batches : {1, 2, 3}) {
    const Schedule schedule = list(FullyShard<>{}, three_blocks(), micro_batches);
    EXPECT_EQ(count(schedule, Action::gather), (5 + 3 - 1) * micro_batches);
    EXPECT_EQ(count(schedule, Action::reduce), 5 * micro_batches);
    EXPECT_EQ(count(schedule, Action::release), count(schedule, Action::gather));
    EXPECT_EQ(count(list(Replicated{}, three_blocks(), micro_batches), Action::reduce), 5);
  }
}

TEST(Schedule, GenerationGathersEveryGroupOnceAndThenOnlyComputes) {
  EXPECT_EQ(text_of(list(FullyShard<>{}, three_blocks(), 1, Pass::generate)),
            "gather 0 gather 1 forward 0 gather 2 forward 1 gather 3 forward 2 gather 4 forward 3 loss 4");
  const HybridShard<Zero3, OptimizerAcross::sharded> full{.group = 2};
  EXPECT_EQ(count(list(full, three_blocks(), 1, Pass::generate), Action::gather_across), 5);
  for (const Schedule& again : {list(FullyShard<>{}, three_blocks(), 1, Pass::generate_again),
                                list(full, three_blocks(), 1, Pass::generate_again)})
    EXPECT_EQ(text_of(again), "forward 0 forward 1 forward 2 forward 3 loss 4");
}

}  // namespace
}  // namespace fsdp::sharding

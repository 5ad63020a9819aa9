// SPDX-License-Identifier: Apache-2.0
#include <fsdp/sharding/schedule.hpp>

#include <algorithm>
#include <array>
#include <string>

#include <gtest/gtest.h>

#include <fsdp/sharding/slots.hpp>
#include <fsdp/sharding/strategies.hpp>

namespace fsdp::sharding {
namespace {

/// Embedding 0, blocks 1 to 3, head 4; a group each.
constexpr std::vector<UnitUse> three_blocks() {
  return {{.groups = {0}, .backward_needs_weights = false},
          {.groups = {1}},
          {.groups = {2}},
          {.groups = {3}},
          {.groups = {4}}};
}
/// The same, with the embedding's table used by the head too: group 5.
constexpr std::vector<UnitUse> three_blocks_tied() {
  return {{.groups = {5}, .backward_needs_weights = false},
          {.groups = {1}},
          {.groups = {2}},
          {.groups = {3}},
          {.groups = {4, 5}}};
}

constexpr std::int64_t count(const Schedule& schedule, Action action) {
  return std::count_if(schedule.begin(), schedule.end(), [&](const Event& event) { return event.action == action; });
}

static_assert(count(make_schedule(FullyShard<>{}.rules(), three_blocks(), 1), Action::gather) == 7);
static_assert(count(make_schedule(Replicated{}.rules(), three_blocks(), 2), Action::gather) == 0);
static_assert(make_schedule(Zero3{}.rules(), three_blocks(), 2).back() ==
              Event{.action = Action::reduce, .index = 0, .micro_batch = 1});

/// "gather 0 forward 0 ...", with ":m" after what belongs to a micro-batch m > 0.
std::string text_of(const Schedule& schedule) {
  std::string text;
  for (const Event& event : schedule) {
    text += (text.empty() ? "" : " ") + std::string(name_of(event.action)) + " " + std::to_string(event.index);
    if (event.micro_batch > 0) text += ":" + std::to_string(event.micro_batch);
  }
  return text;
}

template <class Strategy>
std::string training(int micro_batches, Strategy strategy = {}) {
  return text_of(make_schedule(strategy.rules(), three_blocks(), micro_batches));
}

constexpr auto resharded =
    "gather 0 gather 1 forward 0 release 0 "
    "gather 2 forward 1 release 1 "
    "gather 3 forward 2 release 2 "
    "gather 4 forward 3 "
    "loss 4 release 4 reduce 4 "
    "gather 2 backward 3 release 3 reduce 3 "
    "gather 1 backward 2 release 2 reduce 2 "
    "backward 1 release 1 reduce 1 "
    "backward 0 reduce 0";

constexpr auto resharded_twice =
    "gather 0 gather 1 forward 0 release 0 "
    "gather 2 forward 1 release 1 "
    "gather 3 forward 2 release 2 "
    "gather 4 forward 3 "
    "loss 4 release 4 reduce 4 "
    "gather 2 backward 3 release 3 reduce 3 "
    "gather 1 backward 2 release 2 reduce 2 "
    "backward 1 release 1 reduce 1 "
    "gather 0:1 backward 0 reduce 0 "
    "gather 1:1 forward 0:1 release 0:1 "
    "gather 2:1 forward 1:1 release 1:1 "
    "gather 3:1 forward 2:1 release 2:1 "
    "gather 4:1 forward 3:1 "
    "loss 4:1 release 4:1 reduce 4:1 "
    "gather 2:1 backward 3:1 release 3:1 reduce 3:1 "
    "gather 1:1 backward 2:1 release 2:1 reduce 2:1 "
    "backward 1:1 release 1:1 reduce 1:1 "
    "backward 0:1 reduce 0:1";

TEST(Schedule, FullyShardGathersAheadReleasesFirstAndNeverGathersTheEmbeddingForBackward) {
  EXPECT_EQ(training<FullyShard<ReshardAfterForward::yes>>(1), resharded);
}

TEST(Schedule, FullyShardGathersTheNextMicroBatchDuringTheLastBackward) {
  EXPECT_EQ(training<FullyShard<ReshardAfterForward::yes>>(2), resharded_twice);
}

TEST(Schedule, Zero3RunsTheListOfFullyShard) {
  EXPECT_EQ(training<Zero3>(1), resharded);
  EXPECT_EQ(training<Zero3>(2), resharded_twice);
}

TEST(Schedule, WithoutReshardingEveryGroupIsGatheredOnceAMicroBatch) {
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

TEST(Schedule, Zero1GathersOnceAStepAndReducesOnTheLastMicroBatchOnly) {
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

TEST(Schedule, Zero2GathersOnceAStepAndReducesEveryMicroBatch) {
  EXPECT_EQ(training<Zero2>(2),
            "gather 0 gather 1 forward 0 gather 2 forward 1 gather 3 forward 2 gather 4 forward 3 "
            "loss 4 reduce 4 backward 3 reduce 3 backward 2 reduce 2 backward 1 reduce 1 backward 0 reduce 0 "
            "forward 0:1 forward 1:1 forward 2:1 forward 3:1 "
            "loss 4:1 reduce 4:1 backward 3:1 reduce 3:1 backward 2:1 reduce 2:1 backward 1:1 reduce 1:1 "
            "backward 0:1 release 0:1 release 1:1 release 2:1 release 3:1 release 4:1 reduce 0:1");
}

TEST(Schedule, ATiedTableIsGatheredOnceAndReducedOnceAfterItsLastGradient) {
  EXPECT_EQ(text_of(make_schedule(FullyShard<>{}.rules(), three_blocks_tied(), 1)),
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
  EXPECT_EQ(text_of(make_schedule(FullyShard<>{}.rules(), three_blocks(), 1, Pass::evaluate)),
            "gather 0 gather 1 forward 0 release 0 gather 2 forward 1 release 1 gather 3 forward 2 release 2 "
            "gather 4 forward 3 release 3 loss 4 release 4");
  EXPECT_EQ(text_of(make_schedule(Replicated{}.rules(), three_blocks(), 1, Pass::evaluate)),
            "forward 0 forward 1 forward 2 forward 3 loss 4");
  EXPECT_EQ(text_of(make_schedule({.hold = Hold::step}, three_blocks(), 1, Pass::evaluate)),
            "gather 0 gather 1 forward 0 gather 2 forward 1 gather 3 forward 2 gather 4 forward 3 "
            "loss 4 release 0 release 1 release 2 release 3 release 4");
}

TEST(Schedule, DepthTwoGathersTwoComputationsAhead) {
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

TEST(Schedule, DepthZeroGathersWhatIsComputedNext) {
  EXPECT_EQ(training(1, FullyShard<>{.prefetch_depth = 0}),
            "gather 0 forward 0 release 0 gather 1 forward 1 release 1 gather 2 forward 2 release 2 gather 3 forward 3 "
            "release 3 "
            "gather 4 loss 4 release 4 reduce 4 "
            "gather 3 backward 3 release 3 reduce 3 gather 2 backward 2 release 2 reduce 2 gather 1 backward 1 release "
            "1 reduce 1 "
            "backward 0 reduce 0");
}

TEST(Schedule, AMicroBatchTakesUnitsPlusBlocksMinusOneGathersAndAReductionForEachUnit) {
  for (const int micro_batches : {1, 2, 3}) {
    const Schedule schedule = make_schedule(FullyShard<>{}.rules(), three_blocks(), micro_batches);
    EXPECT_EQ(count(schedule, Action::gather), (5 + 3 - 1) * micro_batches);
    EXPECT_EQ(count(schedule, Action::reduce), 5 * micro_batches);
    EXPECT_EQ(count(schedule, Action::release), count(schedule, Action::gather));
    EXPECT_EQ(count(make_schedule(Replicated{}.rules(), three_blocks(), micro_batches), Action::reduce), 5);
  }
}

TEST(Slots, TwoForWeightsAndOneForGradientsWhereWeightsAreResharded) {
  constexpr std::array<std::int64_t, 5> elements = {100, 10, 20, 10, 200};
  for (const int micro_batches : {1, 2, 3}) {
    const Schedule schedule = make_schedule(FullyShard<>{}.rules(), three_blocks(), micro_batches);
    EXPECT_EQ(gradient_slots(schedule, three_blocks(), elements).sizes, (std::vector<std::int64_t>{200}));
    const Slots weights = weight_slots(schedule, elements);
    EXPECT_EQ(weights.sizes.size(), 2u);
    EXPECT_EQ(weights.holder, (std::vector<int>{-1, -1}));
  }
  const Schedule once = make_schedule(FullyShard<>{}.rules(), three_blocks(), 1);
  EXPECT_EQ(weight_slots(once, elements).sizes, (std::vector<std::int64_t>{200, 10}));
}

TEST(Slots, ATiedTableKeepsASlotOfItsOwn) {
  constexpr std::array<std::int64_t, 6> elements = {0, 10, 10, 10, 1, 100};
  const Schedule schedule = make_schedule(Zero3{}.rules(), three_blocks_tied(), 1);
  EXPECT_EQ(weight_slots(schedule, elements).sizes, (std::vector<std::int64_t>{100, 10, 10}));
  EXPECT_EQ(gradient_slots(schedule, three_blocks_tied(), elements).sizes, (std::vector<std::int64_t>{10, 100}));
}

TEST(Slots, WithoutReshardingAllBlocksAreHeldAtOnce) {
  constexpr std::array<std::int64_t, 5> elements = {100, 10, 20, 30, 200};
  const Schedule schedule = make_schedule(FullyShard<ReshardAfterForward::no>{}.rules(), three_blocks(), 1);
  EXPECT_EQ(weight_slots(schedule, elements).sizes, (std::vector<std::int64_t>{100, 10, 30, 200}));
}

TEST(Slots, ReplicatedTakesNone) {
  constexpr std::array<std::int64_t, 5> nothing_moves = {};
  const Schedule schedule = make_schedule(Replicated{}.rules(), three_blocks(), 2);
  EXPECT_EQ(weight_slots(schedule, nothing_moves).sizes, std::vector<std::int64_t>{});
  for (const std::int64_t size : gradient_slots(schedule, three_blocks(), nothing_moves).sizes) EXPECT_EQ(size, 0);
}

}  // namespace
}  // namespace fsdp::sharding

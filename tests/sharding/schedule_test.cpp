// SPDX-License-Identifier: Apache-2.0
#include <fsdp/sharding/scheduler.hpp>

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

TEST(Schedule, OverKRanksWeightsAreKeptAfterForwardAndGatheredFromTheGroup) {
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

TEST(Schedule, HybridReducesAcrossOnTheLastMicroBatchOnly) {
  const HybridShard<FullyShard<>> hybrid{.group = 2};
  EXPECT_EQ(training(1, hybrid),
            "gather 0 gather 1 forward 0 release 0 "
            "gather 2 forward 1 release 1 "
            "gather 3 forward 2 release 2 "
            "gather 4 forward 3 "
            "loss 4 release 4 reduce 4 reduce-across 4 "
            "gather 2 backward 3 release 3 reduce 3 reduce-across 3 "
            "gather 1 backward 2 release 2 reduce 2 reduce-across 2 "
            "backward 1 release 1 reduce 1 reduce-across 1 "
            "backward 0 reduce 0 reduce-across 0");
  const Schedule twice = make_schedule(hybrid.rules(), three_blocks(), 2);
  EXPECT_EQ(count(twice, Action::reduce), 10);
  EXPECT_EQ(count(twice, Action::reduce_across), 5);
  for (const Event& event : twice) EXPECT_TRUE(event.action != Action::reduce_across || event.micro_batch == 1);
}

TEST(Schedule, HybridWithTheOptimizerShardedAcrossGathersEachGroupAcrossAtItsFirstUseInAStep) {
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
  EXPECT_EQ(count(make_schedule(full.rules(), three_blocks(), 3), Action::gather_across), 5);
}

TEST(Schedule, DeferredReductionKeepsPartialSumsAndReducesOnce) {
  EXPECT_EQ(training(2, FullyShard<>{.reduce = ReduceGradients::last_micro_batch}),
            "gather 0 gather 1 forward 0 release 0 "
            "gather 2 forward 1 release 1 "
            "gather 3 forward 2 release 2 "
            "gather 4 forward 3 "
            "loss 4 release 4 "
            "gather 2 backward 3 release 3 "
            "gather 1 backward 2 release 2 "
            "backward 1 release 1 "
            "gather 0:1 backward 0 "
            "gather 1:1 forward 0:1 release 0:1 "
            "gather 2:1 forward 1:1 release 1:1 "
            "gather 3:1 forward 2:1 release 2:1 "
            "gather 4:1 forward 3:1 "
            "loss 4:1 release 4:1 reduce 4:1 "
            "gather 2:1 backward 3:1 release 3:1 reduce 3:1 "
            "gather 1:1 backward 2:1 release 2:1 reduce 2:1 "
            "backward 1:1 release 1:1 reduce 1:1 "
            "backward 0:1 reduce 0:1");
}

/// Group 5 holds the small tensors of block 1.
TEST(Schedule, PersistentTensorsAreGatheredOnceAStep) {
  std::vector<UnitUse> units = three_blocks();
  units[1].groups = {1, 5};
  std::vector<GroupRules> groups(6);
  groups[5].hold = Hold::step;
  EXPECT_EQ(text_of(make_schedule(Zero3{}.rules(), units, groups, 1)),
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

/// Blocks 1 and 2 are frozen below a trainable third: no backward goes below it, and nothing is gathered for one.
TEST(Schedule, BeforeTheFirstTrainableUnitThereIsNoBackward) {
  std::vector<GroupRules> groups(5);
  for (const int frozen : {0, 1, 2}) groups[static_cast<std::size_t>(frozen)].trainable = false;
  EXPECT_EQ(text_of(make_schedule(FullyShard<>{}.rules(), three_blocks(), groups, 1)),
            "gather 0 gather 1 forward 0 release 0 "
            "gather 2 forward 1 release 1 "
            "gather 3 forward 2 release 2 "
            "gather 4 forward 3 "
            "loss 4 release 4 reduce 4 "
            "backward 3 release 3 reduce 3");
  EXPECT_EQ(first_backward(three_blocks(), groups), 3);
}

/// A frozen unit above a trainable one still passes the gradient down.
TEST(Schedule, AFrozenUnitAboveATrainableOneHasABackwardAndNoReduction) {
  std::vector<GroupRules> groups(5);
  for (const int frozen : {0, 3, 4}) groups[static_cast<std::size_t>(frozen)].trainable = false;
  EXPECT_EQ(text_of(make_schedule(FullyShard<>{}.rules(), three_blocks(), groups, 1)),
            "gather 0 gather 1 forward 0 release 0 "
            "gather 2 forward 1 release 1 "
            "gather 3 forward 2 release 2 "
            "gather 4 forward 3 "
            "loss 4 release 4 "
            "gather 2 backward 3 release 3 "
            "gather 1 backward 2 release 2 reduce 2 "
            "backward 1 release 1 reduce 1");
}

/// Blocks 1 and 2 are one unit: group 1.
TEST(Schedule, BlocksOfOneUnitAreGatheredAndReducedTogether) {
  std::vector<UnitUse> units = three_blocks();
  units[2].groups = {1};
  units[3].groups = {2};
  units[4].groups = {3};
  EXPECT_EQ(text_of(make_schedule(FullyShard<>{}.rules(), units, 1)),
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

TEST(Schedule, TheLastBlockMayBeGivenUpBeforeTheHead) {
  Rules rules = FullyShard<>{}.rules();
  rules.keep_last_block = false;
  const Schedule schedule = make_schedule(rules, three_blocks(), 2);
  EXPECT_EQ(count(schedule, Action::gather), 2 * (5 + 3));
  EXPECT_EQ(text_of(make_schedule(rules, three_blocks(), 1)).substr(0, 150),
            std::string("gather 0 gather 1 forward 0 release 0 gather 2 forward 1 release 1 gather 3 forward 2 release "
                        "2 gather 4 forward 3 release 3 gather 3 loss 4 release 4 reduce 4")
                .substr(0, 150));
}

/// Whoever computes finds its weights gathered; nothing is gathered twice or released twice.
void expect_sound(const Schedule& schedule, const std::vector<UnitUse>& units) {
  std::vector<bool> held(6);
  const auto at = [&](int group) -> std::vector<bool>::reference { return held[static_cast<std::size_t>(group)]; };
  for (const Event& event : schedule) {
    const UnitUse* const unit = computes(event.action) ? &units[static_cast<std::size_t>(event.index)] : nullptr;
    if (event.action == Action::gather || event.action == Action::gather_in_group) {
      EXPECT_FALSE(at(event.index)) << "gathered twice";
      at(event.index) = true;
    } else if (event.action == Action::release) {
      EXPECT_TRUE(at(event.index)) << "released twice";
      at(event.index) = false;
    } else if (unit != nullptr && (event.action != Action::backward || unit->backward_needs_weights)) {
      for (const int group : unit->groups) EXPECT_TRUE(at(group)) << "computed without its weights";
    }
  }
  EXPECT_EQ(held, std::vector<bool>(6)) << "held at the end";
}

TEST(Schedule, IsSoundForEveryDepthAndNumberOfMicroBatches) {
  for (const int depth : {0, 1, 2, 3, 4, 7, 20})
    for (const int micro_batches : {1, 2, 3})
      for (const auto& units : {three_blocks(), three_blocks_tied()})
        for (const Hold hold : {Hold::use, Hold::micro_batch, Hold::step})
          for (const bool group : {false, true}) {
            SCOPED_TRACE(message("depth ", depth, ", ", micro_batches, " micro-batches"));
            const Rules rules{.hold = hold, .prefetch_depth = depth, .group_after_forward = group};
            expect_sound(make_schedule(rules, units, micro_batches), units);
            expect_sound(make_schedule(rules, units, 1, Pass::evaluate), units);
          }
}

/// The most elements gathered at a time, as a walk through the schedule finds them.
std::int64_t most_live(const Schedule& schedule, const std::vector<GroupRules>& groups) {
  std::int64_t live = 0, most = 0;
  for (const Event& event : schedule) {
    const std::int64_t elements = computes(event.action) ? 0 : groups[static_cast<std::size_t>(event.index)].elements;
    if (event.action == Action::gather) live += elements;
    if (event.action == Action::release) live -= elements;
    most = std::max(most, live);
  }
  return most;
}

TEST(Schedule, ALiveBoundHoldsGathersBack) {
  std::vector<GroupRules> groups(5);
  constexpr std::int64_t elements[] = {100, 40, 40, 40, 110};
  for (std::size_t g = 0; g < 5; ++g) groups[g].elements = elements[g];
  for (const int depth : {0, 1, 2, 4})
    for (const std::int64_t bound : {110, 120, 150, 190, 1000}) {
      const Zero3 zero3{.prefetch_depth = depth, .live_bound = bound};
      const Schedule schedule = make_schedule(zero3.rules(), three_blocks(), groups, 2);
      EXPECT_LE(most_live(schedule, groups), bound) << "depth " << depth;
      EXPECT_EQ(count(schedule, Action::release), count(schedule, Action::gather));
      EXPECT_EQ(count(schedule, Action::reduce), 10);
    }
  EXPECT_EQ(make_schedule(Zero3{.live_bound = 1000}.rules(), three_blocks(), groups, 1),
            make_schedule(Zero3{}.rules(), three_blocks(), groups, 1));
  EXPECT_EQ(most_live(make_schedule(Zero3{.prefetch_depth = 4}.rules(), three_blocks(), groups, 1), groups), 330);
  EXPECT_THROW(make_schedule(Zero3{.live_bound = 109}.rules(), three_blocks(), groups, 1), InputError);
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

std::vector<GroupRules> all_trained(std::size_t groups) { return std::vector<GroupRules>(groups); }

TEST(Slots, TwoForWeightsAndOneForGradientsWhereWeightsAreResharded) {
  constexpr std::array<std::int64_t, 5> elements = {100, 10, 20, 10, 200};
  for (const int micro_batches : {1, 2, 3}) {
    const Schedule schedule = make_schedule(FullyShard<>{}.rules(), three_blocks(), micro_batches);
    EXPECT_EQ(gradient_slots(schedule, three_blocks(), all_trained(5), elements, false).sizes(),
              (std::vector<std::int64_t>{200}));
    const Slots weights = weight_slots(schedule, elements);
    EXPECT_EQ(weights.sizes.size(), 2u);
    EXPECT_EQ(weights.holder, (std::vector<int>{-1, -1}));
  }
  const Schedule once = make_schedule(FullyShard<>{}.rules(), three_blocks(), 1);
  EXPECT_EQ(weight_slots(once, elements).sizes, (std::vector<std::int64_t>{200, 10}));
}

/// A reduction runs beside the next computation, and is over when the one after that begins.
TEST(Slots, TwoForGradientsWhereReductionsRunBesideComputation) {
  constexpr std::array<std::int64_t, 5> elements = {100, 10, 20, 10, 200};
  const auto sizes = [&](int micro_batches) {
    const Schedule schedule = make_schedule(FullyShard<>{}.rules(), three_blocks(), micro_batches);
    return gradient_slots(schedule, three_blocks(), all_trained(5), elements, true).sizes();
  };
  EXPECT_EQ(sizes(1), (std::vector<std::int64_t>{200, 10}));
  EXPECT_EQ(sizes(3), (std::vector<std::int64_t>{200, 200}));  // the head's follows the embedding's
}

TEST(Slots, ATiedTableWaitsForItsOwnReductionBeforeItIsWrittenAgain) {
  constexpr std::array<std::int64_t, 6> elements = {0, 10, 10, 10, 1, 100};
  const std::vector<UnitUse> units = three_blocks_tied();
  const Schedule schedule = make_schedule(FullyShard<>{}.rules(), units, 2);
  GradientSlots slots(true);
  int held = 0;
  for (const Event& event : schedule) {
    if (event.action == Action::loss || event.action == Action::backward) {
      const auto& groups = units[static_cast<std::size_t>(event.index)].groups;
      slots.begin_computation(groups, [](int, int) {});
      for (const int group : groups) {
        slots.for_each_reducing([&](int reducing) { EXPECT_NE(reducing, group); });
        if (!slots.holds(group)) slots.take(group, elements[static_cast<std::size_t>(group)]);
        ++held;
      }
    }
    if (event.action == Action::reduce) slots.reduce(event.index, false);
  }
  EXPECT_GT(held, 8);
}

TEST(Slots, ATiedTableKeepsASlotOfItsOwn) {
  constexpr std::array<std::int64_t, 6> elements = {0, 10, 10, 10, 1, 100};
  const Schedule schedule = make_schedule(Zero3{}.rules(), three_blocks_tied(), 1);
  EXPECT_EQ(weight_slots(schedule, elements).sizes, (std::vector<std::int64_t>{100, 10, 10}));
  EXPECT_EQ(gradient_slots(schedule, three_blocks_tied(), all_trained(6), elements, false).sizes(),
            (std::vector<std::int64_t>{10, 100}));
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
  for (const std::int64_t size : gradient_slots(schedule, three_blocks(), all_trained(5), nothing_moves, false).sizes())
    EXPECT_EQ(size, 0);
}

}  // namespace
}  // namespace fsdp::sharding

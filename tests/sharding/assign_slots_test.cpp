// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/slots.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <range/v3/view/zip.hpp>

#include <support/problems.hpp>
#include <tessera/fsdp/sharding/check.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp::sharding {
namespace {

using namespace test;
using Elements = std::vector<std::int64_t>;

/// A problem whose groups need slots of the given numbers of elements.
template <class Strategy>
Problem problem_with(const Strategy& strategy, const Elements& elements, std::vector<UnitUse> units, int micro_batches,
                     bool overlap = false) {
  Problem problem = problem_for(strategy, std::move(units), micro_batches);
  problem.overlap = overlap;
  for (const auto& [group, count] : ranges::views::zip(problem.groups, elements)) group.slot_elements = count;
  return problem;
}

template <class Strategy>
SlotSizes sizes_of(const Strategy& strategy, const Problem& problem) {
  return slot_sizes(assign_slots(make_schedule(strategy.rules(), problem), problem), problem);
}

TEST(Place, OpensAGradientBeforeItsWriteAndClosesItBeforeTheNext) {
  const Problem problem = problem_with(FullyShard<>{}, {100, 10, 20, 10, 200}, three_blocks(), 1);
  EXPECT_EQ(text_of(assign_slots(make_schedule(FullyShard<>{}.rules(), problem), problem)),
            "gather 0@0 gather 1@1 forward 0 release 0@0 "
            "gather 2@0 forward 1 release 1@1 "
            "gather 3@1 forward 2 release 2@0 "
            "gather 4@0 forward 3 "
            "open-gradient 4@0 loss 4 release 4@0 reduce 4 "
            "gather 2@0 close-gradient 4@0 open-gradient 3@0 backward 3 release 3@1 reduce 3 "
            "gather 1@1 close-gradient 3@0 open-gradient 2@0 backward 2 release 2@0 reduce 2 "
            "close-gradient 2@0 open-gradient 1@0 backward 1 release 1@1 reduce 1 "
            "close-gradient 1@0 open-gradient 0@0 backward 0 reduce 0 close-gradient 0@0");
}

/// A reduction overlaps with the next computation and is complete when the computation after that begins.
TEST(Place, OverlappedReductionsCloseGradientsOneComputationLater) {
  const Problem problem = problem_with(FullyShard<>{}, {100, 10, 20, 10, 200}, three_blocks(), 1, true);
  EXPECT_EQ(text_of(assign_slots(make_schedule(FullyShard<>{}.rules(), problem), problem)),
            "gather 0@0 gather 1@1 forward 0 release 0@0 "
            "gather 2@0 forward 1 release 1@1 "
            "gather 3@1 forward 2 release 2@0 "
            "gather 4@0 forward 3 "
            "open-gradient 4@0 loss 4 release 4@0 reduce 4 "
            "gather 2@0 open-gradient 3@1 backward 3 release 3@1 reduce 3 "
            "gather 1@1 close-gradient 4@0 open-gradient 2@0 backward 2 release 2@0 reduce 2 "
            "close-gradient 3@1 open-gradient 1@1 backward 1 release 1@1 reduce 1 "
            "close-gradient 2@0 open-gradient 0@0 backward 0 reduce 0 close-gradient 1@1 close-gradient 0@0");
}

TEST(Place, ReshardingNeedsTwoWeightSlotsAndOneGradientSlot) {
  const Elements elements{100, 10, 20, 10, 200};
  EXPECT_EQ(sizes_of(FullyShard<>{}, problem_with(FullyShard<>{}, elements, three_blocks(), 1)),
            (SlotSizes{.weights = {200, 10}, .gradients = {200}}));
  for (const int micro_batches : {2, 3}) {
    const SlotSizes sizes =
        sizes_of(FullyShard<>{}, problem_with(FullyShard<>{}, elements, three_blocks(), micro_batches));
    EXPECT_EQ(sizes.weights.size(), 2u);
    EXPECT_EQ(sizes.gradients, (Elements{200}));
  }
}

TEST(Place, OverlappedReductionsNeedTwoGradientSlots) {
  const auto sizes = [](int micro_batches) {
    return sizes_of(FullyShard<>{},
                    problem_with(FullyShard<>{}, {100, 10, 20, 10, 200}, three_blocks(), micro_batches, true))
        .gradients;
  };
  EXPECT_EQ(sizes(1), (Elements{200, 10}));
  EXPECT_EQ(sizes(3), (Elements{200, 200}));  // the slot of the head is reused after the embedding
}

TEST(Place, ATiedTableIsWrittenAgainOnlyAfterItsReduction) {
  const Problem problem = problem_with(FullyShard<>{}, {0, 10, 10, 10, 1, 100}, three_blocks_tied(), 2, true);
  const std::string text = text_of(assign_slots(make_schedule(FullyShard<>{}.rules(), problem), problem));
  const auto reduced = text.find(" reduce 5 "), closed = text.find(" close-gradient 5@", reduced),
             opened = text.find(" open-gradient 5@", reduced), written = text.find(" loss 4:1", reduced);
  ASSERT_NE(reduced, std::string::npos) << text;
  EXPECT_LT(closed, opened) << text;
  EXPECT_LT(opened, written) << text;
}

TEST(Place, ATiedTableHasADedicatedSlot) {
  EXPECT_EQ(sizes_of(Zero3{}, problem_with(Zero3{}, {0, 10, 10, 10, 1, 100}, three_blocks_tied(), 1)),
            (SlotSizes{.weights = {100, 10, 10}, .gradients = {10, 100}}));
}

TEST(Place, WithoutReshardingAllBlocksHaveSlotsAtOnce) {
  using Kept = FullyShard<ReshardAfterForward::no>;
  EXPECT_EQ(sizes_of(Kept{}, problem_with(Kept{}, {100, 10, 20, 30, 200}, three_blocks(), 1)).weights,
            (Elements{100, 10, 30, 200}));
}

TEST(Place, GroupsUsedInPlaceAtRestNeedNoSlot) {
  EXPECT_EQ(sizes_of(Replicated{}, problem_with(Replicated{}, {}, three_blocks(), 2)), SlotSizes{});
  EXPECT_EQ(sizes_of(FullyShard<>{}, problem_with(FullyShard<>{}, {}, three_blocks(), 2, true)), SlotSizes{});
}

TEST(Place, KeepsUserAssignedSlotsExclusive) {
  Problem problem = problem_with(FullyShard<>{}, {8, 8, 8}, {{.groups = {0, 1}}, {.groups = {2}}}, 1);
  problem.pass = Pass::evaluate;
  const Schedule list = {{.action = Action::gather, .index = 0},  {.action = Action::gather, .index = 1, .slot = 0},
                         {.action = Action::forward, .index = 0}, {.action = Action::release, .index = 0},
                         {.action = Action::release, .index = 1}, {.action = Action::gather, .index = 2},
                         {.action = Action::loss, .index = 1},    {.action = Action::release, .index = 2}};
  EXPECT_EQ(text_of(assign_slots(list, problem)),
            "gather 0@1 gather 1@0 forward 0 release 0@1 release 1@0 gather 2@1 loss 1 release 2@1");

  const Problem training = problem_with(FullyShard<>{}, {8, 8, 8, 8, 8}, three_blocks(), 2, true);
  const Schedule placed = assign_slots(make_schedule(FullyShard<>{}.rules(), training), training);
  EXPECT_EQ(assign_slots(placed, training), placed);
}

TEST(Place, SlotsSharedBySeveralSchedulesHaveTheLargestSize) {
  EXPECT_EQ(largest({.weights = {5, 1}, .gradients = {}}, {.weights = {2, 3, 4}, .gradients = {7}}),
            (SlotSizes{.weights = {5, 3, 4}, .gradients = {7}}));
}

/// Lists only computations and input moves, for blocks 1 to 3, of which some are offloaded.
std::string input_moves(const Schedule& schedule) {
  Schedule list = schedule;
  std::erase_if(list, [](const Task& task) { return !works_on_unit(task.action); });
  return text_of(list);
}
Problem offloading(std::vector<int> units, int micro_batches = 1, Pass pass = Pass::train) {
  Problem problem = problem_for(FullyShard<>{}, three_blocks(), micro_batches, pass);
  for (const int unit : units) problem.units[static_cast<std::size_t>(unit)].offloads_input = true;
  return problem;
}

TEST(Place, OffloadsInputsAfterTheyAreMadeAndFetchesWhenABufferIsFree) {
  const auto moves = [](const Problem& problem) {
    return input_moves(assign_slots(make_schedule(FullyShard<>{}.rules(), problem), problem));
  };
  EXPECT_EQ(moves(offloading({1, 2})),
            "forward 0 send-input 1@0 forward 1 send-input 2@1 forward 2 forward 3 "
            "loss 4 fetch-input 2@1 backward 3 fetch-input 1@0 backward 2 backward 1 backward 0");
  EXPECT_EQ(moves(offloading({1})),
            "forward 0 send-input 1@0 forward 1 forward 2 forward 3 "
            "loss 4 fetch-input 1@0 backward 3 backward 2 backward 1 backward 0");
  EXPECT_EQ(moves(offloading({1}, 2)),
            "forward 0 send-input 1@0 forward 1 forward 2 forward 3 "
            "loss 4 fetch-input 1@0 backward 3 backward 2 backward 1 backward 0 "
            "forward 0:1 send-input 1@0:1 forward 1:1 forward 2:1 forward 3:1 "
            "loss 4:1 fetch-input 1@0:1 backward 3:1 backward 2:1 backward 1:1 backward 0:1");
  EXPECT_EQ(moves(offloading({1, 2}, 1, Pass::evaluate)), "forward 0 forward 1 forward 2 forward 3 loss 4");
}

TEST(Place, KeepsExistingInputMovesOfASchedule) {
  const Problem problem = offloading({2});
  Schedule list = make_schedule(FullyShard<>{}.rules(), problem);
  const auto before = [&](Action action, int index, const Task& added) {
    const auto found = std::find_if(list.begin(), list.end(),
                                    [&](const Task& task) { return task.action == action && task.index == index; });
    list.insert(found, added);
  };
  before(Action::forward, 2, {.action = Action::send_input, .index = 2});
  before(Action::backward, 2, {.action = Action::fetch_input, .index = 2});
  EXPECT_EQ(input_moves(checked_and_placed(list, problem)),
            "forward 0 forward 1 send-input 2@0 forward 2 forward 3 loss 4 backward 3 fetch-input 2@0 backward 2 "
            "backward 1 backward 0");
}

}  // namespace
}  // namespace fsdp::sharding

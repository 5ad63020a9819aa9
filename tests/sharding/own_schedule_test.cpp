// SPDX-License-Identifier: Apache-2.0
// A strategy with its own schedule trains; an invalid schedule is refused on every rank before memory is allocated.
#include <support/stacks/own_schedule.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/sharding/own_strategy.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

#include <support/problems.hpp>
#include <support/small_llama.hpp>

namespace fsdp::test {
namespace {

using sharding::Action;
using sharding::Schedule;
using sharding::Task;
using Names = std::vector<std::string>;

static_assert(sharding::GivesSchedule<OwnSchedule> && !sharding::GivesRules<OwnSchedule>);
static_assert(check_sharding<OwnSchedule>() && check_sharding<HybridShard<OwnSchedule>>() &&
              check_sharding<Offload<OwnSchedule>>());

TEST(OwnSchedule, MatchesTheScheduleOfFullyShard) {
  using namespace sharding::test;
  for (const int micro_batches : {1, 2, 3})
    EXPECT_EQ(text_of(OwnSchedule{}.schedule(problem_for(OwnSchedule{}, three_blocks(), micro_batches))),
              text_of(list(FullyShard<>{}, three_blocks(), micro_batches)));
}

TEST(OwnSchedule, TrainsAndGeneratesBitIdenticallyToFullyShard) {
  for (const int micro_batches : {1, 2}) {
    RunOptions options = with_steps(4, uneven_options(2, micro_batches));
    options.evaluated = some_windows(1, 7, 37);
    options.logits_of = some_windows(2, 7, 37);
    const RunResults built_in = run("fsdp2", options), own = run_own_schedule(options);
    EXPECT_EQ(own.losses, built_in.losses);
    EXPECT_EQ(own.norms, built_in.norms);
    EXPECT_EQ(own.last_evaluation, built_in.last_evaluation);
    EXPECT_EQ(own.logits, built_in.logits);
    expect_same_tensors(own.weights, built_in.weights);
    EXPECT_EQ(own.records.size(), built_in.records.size());
    expect_planned_bytes(own);
  }
}

TEST(OwnSchedule, TrainsWithATiedTableAndFrozenWeights) {
  RunOptions options = with_steps(3, uneven_options(2, 2));
  options.config.tied = true;
  options.units.frozen = {"model.layers.1.*"};
  const RunResults built_in = run("fsdp2", options), own = run_own_schedule(options);
  expect_same_bits(own, built_in);
}

/// The n-th such task of a schedule.
Schedule::iterator find(Schedule& list, Action action, int index, int n = 0) {
  return std::find_if(list.begin(), list.end(),
                      [&](const Task& task) { return task.action == action && task.index == index && n-- == 0; });
}

/// Expects that every rank refuses the corrupted schedule with this message.
void expect_refused(void (*spoil)(Schedule& list), const std::string& sentence) {
  const Names words = refusals(uneven_options(2), spoil);
  ASSERT_EQ(words.size(), 2u);
  for (const std::string& word : words) {
    EXPECT_EQ(word.substr(0, word.find(" [training, tasks ")), sentence);
    EXPECT_EQ(word.back(), ']') << "the tasks around it";
  }
}

TEST(OwnSchedule, WithAMissingGatherIsRefusedOnEveryRank) {
  expect_refused([](Schedule& list) { list.erase(find(list, Action::gather, 4)); },
                 "sharding: task 11, loss head: the weights of head are not gathered; gather them before");
}

TEST(OwnSchedule, WithAnEarlyReleaseIsRefusedOnEveryRank) {
  expect_refused([](Schedule& list) { std::iter_swap(find(list, Action::release, 2), find(list, Action::forward, 2)); },
                 "sharding: task 8, release block 1: its weights are still used by task 9, forward block 1; release "
                 "them after it, or gather them again before it");
}

TEST(OwnSchedule, WithADuplicateReductionIsRefusedOnEveryRank) {
  expect_refused([](Schedule& list) { list.push_back({.action = Action::reduce, .index = 1}); },
                 "sharding: task 28, reduce block 0: nothing was added to its gradient since it was reduced by task "
                 "25");
}

TEST(OwnSchedule, WithAMissingReductionIsRefusedOnEveryRank) {
  expect_refused([](Schedule& list) { list.erase(find(list, Action::reduce, 1)); },
                 "sharding: task 23, backward block 0: what it adds to the gradient of block 0 is never reduced");
}

TEST(OwnSchedule, WithASlotInUseTwiceIsRefusedOnEveryRank) {
  expect_refused(
      [](Schedule& list) {
        find(list, Action::gather, 0)->slot = 0;
        find(list, Action::gather, 1)->slot = 0;
      },
      "sharding: task 1, gather block 0: slot 0 is held by embedding since task 0");
}

TEST(OwnSchedule, WithReorderedComputationsIsRefusedOnEveryRank) {
  expect_refused([](Schedule& list) { std::iter_swap(find(list, Action::forward, 1), find(list, Action::forward, 2)); },
                 "sharding: task 5, forward block 1: the next computation is forward block 0 of micro-batch 0");
}

/// Each schedule is valid, but together their collectives would deadlock.
TEST(OwnSchedule, ThatDiffersBetweenRanksIsRefusedOnEveryRank) {
  const Names words = refusals(
      uneven_options(3),
      [](Schedule& list) {
        const auto release = find(list, Action::release, 2, 1);  // the last release of block 1 and its reduction
        std::iter_swap(release, release + 1);
      },
      [](int rank) { return rank == 2; });
  ASSERT_EQ(words.size(), 3u);
  for (const std::string& word : words)
    EXPECT_EQ(word.find("sharding: rank 2 has another schedule than rank 0; "), 0u) << word;
}

}  // namespace
}  // namespace fsdp::test

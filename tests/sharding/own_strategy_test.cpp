// SPDX-License-Identifier: Apache-2.0
// Schedules that are checked while compiling. tests/compile_fail/schedules.cpp tests the compile errors.
#include <tessera/fsdp/sharding/own_strategy.hpp>

#include <cstddef>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <range/v3/view/enumerate.hpp>

#include <support/broken_lists.hpp>
#include <support/errors.hpp>
#include <support/problems.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/sharding/check.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/sharding/slots.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp::sharding {
namespace {

using detail::Tried;

struct WithoutDefault : Zero3 {
  explicit WithoutDefault(int depth) { prefetch_depth = depth; }
};
struct Bounded : Zero3 {
  constexpr Rules rules() const {
    Rules rules = Zero3::rules();
    rules.live_bound = 1;
    return rules;
  }
};
struct AtRunTime : Zero3 {
  Rules rules() const { return Zero3::rules(); }
};
/// Has no schedule for some passes.
struct TrainsOnly : test::Breaks<Breach::none> {
  constexpr Schedule schedule(const Problem& problem) const {
    if (problem.pass != Pass::train) throw InputError("it trains only");
    return test::Breaks<Breach::none>::schedule(problem);
  }
};

static_assert(holds<FullyShard<>>() && holds<HybridShard<Zero3, OptimizerAcross::sharded>>() && holds<Bounded>());
static_assert(holds<test::Breaks<Breach::none>>(), "a list of the strategy's own, which breaks nothing");
static_assert(!judged_while_compiling<WithoutDefault> && !judged_while_compiling<AtRunTime> &&
              !judged_while_compiling<TrainsOnly> && !judged_while_compiling<RunTimeSharded>);
static_assert(check_sharding<WithoutDefault>() && check_sharding<AtRunTime>() && check_sharding<TrainsOnly>());
static_assert(trials.front() == Trial{1, false, 1, Pass::train} &&
              trials.back() == Trial{3, true, 2, Pass::generate_again});

/// Expects that a built-in strategy, which programs do not check again, is valid in all cases.
template <class S>
void expect_good() {
  static_assert(fsdp::detail::judged_by_library<S>);
  for (const Trial& trial : trials) {
    const Tried<S> tried(trial);
    EXPECT_EQ(tried.findings, detail::Findings{}) << policy_text<S>();
    EXPECT_EQ(tried.schedule, assign_slots(tried.schedule, tried.problem));
  }
}
template <class... S>
void expect_good_alone_and_wrapped() {
  (expect_good<S>(), ...);
  (expect_good<HybridShard<S>>(), ...);
  (expect_good<HybridShard<S, OptimizerAcross::sharded>>(), ...);
  (expect_good<Reproducible<S>>(), ...);
  (expect_good<WithLayout<Offload<S>, buffer::Owned>>(), ...);
}

TEST(Proof, TheLibrarysStrategiesAreValid) {
  expect_good_alone_and_wrapped<FullyShard<>, FullyShard<ReshardAfterForward::no>,
                                FullyShard<ReshardAfterForward::to_group>, Zero1, Zero2, Zero3>();
  expect_good<Replicated>();
}

/// The first violation of the strategy is of the given rule: the compile-time message equals the message that is
/// thrown.
template <Breach breach>
void expect_same_sentence() {
  using Strategy = test::Breaks<breach>;
  constexpr detail::Extent extent = detail::extent_of<Strategy>;
  static_assert(extent.known && extent.good < trials.size());
  constexpr Trial trial = trials[extent.good];
  static_assert(detail::findings_in<Strategy>(trial).verdict.breach == breach);
  constexpr Sentence sentence = detail::sentence_in<Strategy>(trial);

  const Problem problem =
      trial.problem(Strategy{}.facts(), std::is_same_v<typename Strategy::AtRest, buffer::Replicate>);
  const detail::TrialNames trial_names(trial);
  const Names names{.units = {trial_names.units.begin(), trial_names.units.end()},
                    .groups = {trial_names.groups.begin(), trial_names.groups.end()}};
  EXPECT_EQ(fsdp::test::input_error_of([&] { checked_and_placed(Strategy{}.schedule(problem), problem, names); }),
            sentence.view());
}

TEST(Proof, CompileTimeAndRunTimeChecksReportTheSameMessage) {
  constexpr auto breaches = static_cast<std::size_t>(Breach::never_closed);
  static_assert(static_cast<std::size_t>(Breach::not_exchanged) == breaches + 1, "those of activations follow");
  []<std::size_t... b>(std::index_sequence<b...>) { (expect_same_sentence<static_cast<Breach>(b + 1)>(), ...); }
  (std::make_index_sequence<breaches>());
}

TEST(Proof, AMessageIdentifiesTheTask) {
  constexpr Sentence sentence = detail::sentence_in<test::Breaks<Breach::used_ungathered>>(trials.front());
  EXPECT_EQ(sentence.view(),
            "sharding: task 1, forward embedding: the weights of embedding are not gathered; gather them before "
            "[training, tasks 0 to 3: gather block 0, forward embedding, release embedding, gather head]");
}

/// No collective starts between a close task, which may wait, and the next computation.
TEST(Proof, NoCollectiveStartsBetweenAWaitAndTheNextComputation) {
  constexpr detail::Extent extent = detail::extent_of<test::Breaks<Breach::sent_after_wait>>;
  static_assert(extent.known && extent.good == 0);
  for (const Trial& trial : trials) {
    bool waited = false;
    for (const Task& task : Tried<FullyShard<>>(trial).schedule) {
      EXPECT_FALSE(waited && communicates(task.action));
      waited = !computes(task.action) && (waited || task.action == Action::close_gradient);
    }
  }
}

/// The first race of a schedule in which two tasks are swapped.
Race race_after_swap(const Rules& rules, const Task& a, const Task& b) {
  Problem problem = trials.back().problem(rules.facts, false);
  problem.pass = Pass::train;
  Schedule list = with_slots(make_schedule(rules, problem), problem);
  const auto find = [&](const Task& task) {
    return std::find_if(list.begin(), list.end(), [&](const Task& other) {
      return other.action == task.action && other.index == task.index && other.micro_batch == task.micro_batch;
    });
  };
  EXPECT_EQ(first_race(list, problem), Race{});
  std::iter_swap(find(a), find(b));
  const Race race = first_race(list, problem);
  EXPECT_FALSE(judge(list, problem).holds());
  EXPECT_TRUE(race == Race{} || list[static_cast<std::size_t>(race.first)].index == a.index ||
              list[static_cast<std::size_t>(race.second)].index == a.index);
  return race;
}

TEST(Proof, EventsOrderTheCommunicatorsOfBothAxes) {
  const Rules full = HybridShard<FullyShard<>, OptimizerAcross::sharded>{}.rules();
  EXPECT_NE(
      race_after_swap(full, {.action = Action::gather_across, .index = 1}, {.action = Action::gather, .index = 1}),
      Race{})
      << "shards that are read while they arrive";
  const Rules hybrid = HybridShard<FullyShard<>>{}.rules();
  EXPECT_NE(race_after_swap(hybrid, {.action = Action::reduce, .index = 1, .micro_batch = 1},
                            {.action = Action::reduce_across, .index = 1, .micro_batch = 1}),
            Race{})
      << "a sum that is sent before it is reduced";
}

/// Schedules that the check accepts have no race, even if a task was removed, repeated or moved.
TEST(Proof, AcceptedSchedulesHaveNoRace) {
  int accepted = 0;
  const auto expect = [&](const Schedule& list, const Problem& problem) {
    if (!judge(list, problem).holds()) return;
    ++accepted;
    EXPECT_EQ(first_race(list, problem), Race{}) << test::text_of(list);
  };
  const auto over_trials = [&]<class S>(const S&) {
    for (const Trial& trial : trials) {
      const Tried<S> tried(trial);
      for (const auto& [from, moved] : ranges::views::enumerate(tried.schedule)) {
        Schedule list = tried.schedule;
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(from));
        expect(list, tried.problem);
        auto at = list.insert(list.begin(), moved);
        expect(list, tried.problem);
        for (; at + 1 != list.end(); ++at) {  // moves the task one place further
          std::iter_swap(at, at + 1);
          expect(list, tried.problem);
        }
      }
    }
  };
  over_trials(FullyShard<>{});
  over_trials(FullyShard<ReshardAfterForward::to_group>{});
  over_trials(Replicated{});
  over_trials(HybridShard<Zero3, OptimizerAcross::sharded>{});
  EXPECT_GT(accepted, 10000);
}

}  // namespace
}  // namespace fsdp::sharding

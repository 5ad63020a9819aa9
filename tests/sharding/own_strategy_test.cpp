// SPDX-License-Identifier: Apache-2.0
// Schedules that are checked while compiling. tests/compile_fail/schedules.cpp tests the compile errors.
#include <tessera/fsdp/sharding/own_strategy.hpp>

#include <cstddef>
#include <iterator>
#include <utility>

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

using detail::TestedCase;

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
struct TrainsOnly : test::Breaks<Violation::none> {
  constexpr Schedule schedule(const Problem& problem) const {
    if (problem.pass != Pass::train) throw InputError("it trains only");
    return test::Breaks<Violation::none>::schedule(problem);
  }
};

static_assert(holds<FullyShard<>>() && holds<HybridShard<Zero3, OptimizerAcross::sharded>>() && holds<Bounded>());
static_assert(holds<test::Breaks<Violation::none>>(), "a list of the strategy's own, which breaks nothing");
static_assert(!checked_at_compile_time<WithoutDefault> && !checked_at_compile_time<AtRunTime> &&
              !checked_at_compile_time<TrainsOnly> && !checked_at_compile_time<RunTimeSharded>);
static_assert(check_sharding<WithoutDefault>() && check_sharding<AtRunTime>() && check_sharding<TrainsOnly>());
static_assert(test_cases.front() == TestCase{1, false, 1, Pass::train} &&
              test_cases.back() == TestCase{3, true, 2, Pass::generate_again});

/// Expects that a built-in strategy, which programs do not check again, is valid in all cases.
template <class S>
void expect_good() {
  static_assert(fsdp::detail::checked_by_library<S>);
  for (const TestCase& test_case : test_cases) {
    const TestedCase<S> tested(test_case);
    EXPECT_EQ(tested.findings, detail::Findings{}) << policy_text<S>();
    EXPECT_EQ(tested.schedule, assign_slots(tested.schedule, tested.problem));
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
template <Violation violation>
void expect_same_message() {
  using Strategy = test::Breaks<violation>;
  constexpr detail::Extent extent = detail::extent_of<Strategy>;
  static_assert(extent.known && extent.good < test_cases.size());
  constexpr TestCase test_case = test_cases[extent.good];
  static_assert(detail::findings_in<Strategy>(test_case).result.violation == violation);
  constexpr MessageText text = detail::message_in<Strategy>(test_case);

  const Problem problem =
      test_case.problem(Strategy{}.facts(), std::is_same_v<typename Strategy::AtRest, buffer::Replicate>);
  const detail::TestCaseNames names_of_case(test_case);
  const Names names{.units = {names_of_case.units.begin(), names_of_case.units.end()},
                    .groups = {names_of_case.groups.begin(), names_of_case.groups.end()}};
  EXPECT_EQ(fsdp::test::input_error_of([&] { checked_and_placed(Strategy{}.schedule(problem), problem, names); }),
            text.view());
}

TEST(Proof, CompileTimeAndRunTimeChecksReportTheSameMessage) {
  constexpr auto violations = static_cast<std::size_t>(Violation::never_closed);
  static_assert(static_cast<std::size_t>(Violation::not_exchanged) == violations + 1, "those of activations follow");
  []<std::size_t... b>(std::index_sequence<b...>) { (expect_same_message<static_cast<Violation>(b + 1)>(), ...); }
  (std::make_index_sequence<violations>());
}

TEST(Proof, AMessageIdentifiesTheTask) {
  constexpr MessageText text = detail::message_in<test::Breaks<Violation::used_ungathered>>(test_cases.front());
  EXPECT_EQ(text.view(),
            "sharding: task 1, forward embedding: the weights of embedding are not gathered; gather them before "
            "[training, tasks 0 to 3: gather block 0, forward embedding, release embedding, gather head]");
}

/// No collective starts between a close task, which may wait, and the next computation.
TEST(Proof, NoCollectiveStartsBetweenAWaitAndTheNextComputation) {
  constexpr detail::Extent extent = detail::extent_of<test::Breaks<Violation::sent_after_wait>>;
  static_assert(extent.known && extent.good == 0);
  for (const TestCase& test_case : test_cases) {
    bool waited = false;
    for (const Task& task : TestedCase<FullyShard<>>(test_case).schedule) {
      EXPECT_FALSE(waited && communicates(task.action));
      waited = !computes(task.action) && (waited || task.action == Action::close_gradient);
    }
  }
}

/// The first race of a schedule in which two tasks are swapped.
Race race_after_swap(const Rules& rules, const Task& a, const Task& b) {
  Problem problem = test_cases.back().problem(rules.facts, false);
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
  EXPECT_FALSE(check_schedule(list, problem).holds());
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
    if (!check_schedule(list, problem).holds()) return;
    ++accepted;
    EXPECT_EQ(first_race(list, problem), Race{}) << test::text_of(list);
  };
  const auto over_test_cases = [&]<class S>(const S&) {
    for (const TestCase& test_case : test_cases) {
      const TestedCase<S> tested(test_case);
      for (const auto& [from, moved] : ranges::views::enumerate(tested.schedule)) {
        Schedule list = tested.schedule;
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(from));
        expect(list, tested.problem);
        auto at = list.insert(list.begin(), moved);
        expect(list, tested.problem);
        for (; at + 1 != list.end(); ++at) {  // moves the task one place further
          std::iter_swap(at, at + 1);
          expect(list, tested.problem);
        }
      }
    }
  };
  over_test_cases(FullyShard<>{});
  over_test_cases(FullyShard<ReshardAfterForward::to_group>{});
  over_test_cases(Replicated{});
  over_test_cases(HybridShard<Zero3, OptimizerAcross::sharded>{});
  EXPECT_GT(accepted, 10000);
}

}  // namespace
}  // namespace fsdp::sharding

// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/check.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <range/v3/view/enumerate.hpp>

#include <support/errors.hpp>
#include <support/problems.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/slots.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp::sharding {
namespace {

using namespace test;
using fsdp::test::expect_parts;

const Names names{.units = {"embedding", "block 0", "block 1", "block 2", "head"},
                  .groups = {"embedding", "block 0", "block 1", "block 2", "head"}};

/// The error message of check for a schedule, without the surrounding tasks; empty if it is accepted.
std::string error_of(const Schedule& schedule, const Problem& problem) {
  const std::string text = fsdp::test::error_of<InputError>([&] { check(schedule, problem, names); });
  return text.substr(0, text.find(" ["));
}

/// A schedule to corrupt: that of FullyShard over three blocks, with or without assigned slots.
class Spoiled {
 public:
  explicit Spoiled(int micro_batches = 1, bool placed = false)
      : problem_(problem_for(FullyShard<>{}, three_blocks(), micro_batches)) {
    for (GroupFacts& group : problem_.groups) group.slot_elements = 64;
    list_ = make_schedule(FullyShard<>{}.rules(), problem_);
    if (placed) list_ = assign_slots(list_, problem_);
  }
  /// The position of the n-th such task.
  std::ptrdiff_t at(Action action, int index, int n = 0) const {
    for (const auto& [i, task] : ranges::views::enumerate(list_))
      if (task.action == action && task.index == index && n-- == 0) return static_cast<std::ptrdiff_t>(i);
    ADD_FAILURE() << "no " << name_of(action) << ' ' << index;
    return 0;
  }
  Spoiled& without(Action action, int index, int n = 0) {
    list_.erase(list_.begin() + at(action, index, n));
    return *this;
  }
  Spoiled& insert(std::ptrdiff_t at, const Task& task) {
    list_.insert(list_.begin() + at, task);
    return *this;
  }
  Spoiled& swapped(std::ptrdiff_t a, std::ptrdiff_t b) {
    std::iter_swap(list_.begin() + a, list_.begin() + b);
    return *this;
  }
  Task& task(Action action, int index, int n = 0) { return list_[static_cast<std::size_t>(at(action, index, n))]; }
  Problem& problem() { return problem_; }
  std::string error() const { return error_of(list_, problem_); }

 private:
  Problem problem_;
  Schedule list_;
};

TEST(Check, AcceptsTheUnmodifiedSchedule) {
  EXPECT_EQ(Spoiled().error(), "");
  EXPECT_EQ(Spoiled(3).error(), "");
  EXPECT_EQ(Spoiled(3, true).error(), "");
}

TEST(Check, RefusesUseOfWeightsThatAreNotGathered) {
  EXPECT_EQ(Spoiled().without(Action::gather, 1).error(),
            "sharding: task 4, forward block 0: the weights of block 0 are not gathered; gather them before");
  EXPECT_EQ(Spoiled().without(Action::gather, 1, 1).error(),
            "sharding: task 6, release block 0: its weights are still used by task 22, backward block 0; release them "
            "after it, or gather them again before it");
  Spoiled early;
  const auto release = early.at(Action::release, 2);
  EXPECT_EQ(early.swapped(release, early.at(Action::forward, 2)).error(),
            "sharding: task 8, release block 1: its weights are still used by task 9, forward block 1; release them "
            "after it, or gather them again before it");
}

TEST(Check, RefusesWeightsThatAreGatheredTwiceOrNeverReleased) {
  Spoiled twice;
  twice.insert(2, {.action = Action::gather, .index = 0});
  EXPECT_EQ(twice.error(),
            "sharding: task 2, gather embedding: its weights were gathered already by task 0 and not released since");
  EXPECT_EQ(Spoiled().without(Action::release, 1, 1).error(),
            "sharding: task 19, gather block 0: its weights are never released");
  Spoiled again;
  again.insert(4, {.action = Action::release, .index = 0});
  EXPECT_EQ(again.error(), "sharding: task 4, release embedding: its weights are not gathered");
  Spoiled unused;
  unused.insert(0, {.action = Action::release, .index = 1}).insert(0, {.action = Action::gather, .index = 1});
  EXPECT_EQ(unused.error(),
            "sharding: task 1, release block 0: no computation used its weights since they were gathered");
  Spoiled last;
  last.insert(last.at(Action::reduce, 0), {.action = Action::release, .index = 1});
  last.insert(last.at(Action::reduce, 0) - 1, {.action = Action::gather, .index = 1});
  EXPECT_EQ(last.error(),
            "sharding: task 28, release block 0: no computation used its weights since they were gathered");
  Spoiled resident;
  resident.problem().groups[0].resident = true;
  EXPECT_EQ(resident.error(),
            "sharding: task 0, gather embedding: its weights are whole on every rank at rest; leave this out");
}

TEST(Check, RefusesComputationsOutOfOrder) {
  Spoiled order;
  const auto last = order.at(Action::backward, 1);
  EXPECT_EQ(order.swapped(order.at(Action::backward, 2), last).error(),
            "sharding: task 20, backward block 0: the next computation is backward block 1 of micro-batch 0");
  EXPECT_EQ(Spoiled(2).without(Action::backward, 0, 1).without(Action::reduce, 0, 1).error(),
            "sharding: the list of 54 tasks ends before backward embedding of micro-batch 1");
  Spoiled more;
  more.insert(26, {.action = Action::backward, .index = 0});
  EXPECT_EQ(more.error(), "sharding: task 27, backward embedding: nothing is left to compute");
}

TEST(Check, RefusesGradientsThatAreReducedTwiceOrNever) {
  Spoiled twice;
  const auto reduce = twice.at(Action::reduce, 3);
  twice.insert(reduce + 1, {.action = Action::reduce, .index = 3});
  EXPECT_EQ(twice.error(),
            "sharding: task 19, reduce block 2: nothing was added to its gradient since it was "
            "reduced by task 18");
  EXPECT_EQ(Spoiled().without(Action::reduce, 3).error(),
            "sharding: task 16, backward block 2: what it adds to the gradient of block 2 is never reduced");
  Spoiled nothing;
  nothing.insert(3, {.action = Action::reduce, .index = 0});
  EXPECT_EQ(nothing.error(), "sharding: task 3, reduce embedding: nothing was added to its gradient");
  Spoiled frozen;
  frozen.problem().groups[2].trainable = false;
  EXPECT_EQ(frozen.error(), "sharding: task 22, reduce block 1: nothing was added to its gradient");
  EXPECT_EQ(Spoiled(2).without(Action::reduce, 3, 0).error(), "") << "partial sums are kept and reduced later";
}

/// An in-place reduction leaves the sum over ranks where the next micro-batch would accumulate.
TEST(Check, RefusesToAddToAGradientThatIsSummedInPlace) {
  Problem problem = problem_for(Replicated{}, three_blocks(), 2);
  Schedule list = make_schedule(Replicated{}.rules(), problem);
  EXPECT_EQ(error_of(list, problem), "");
  list.insert(list.begin() + 5, {.action = Action::reduce, .index = 4});
  EXPECT_EQ(error_of(list, problem),
            "sharding: task 14, loss head: the gradient of head was all-reduced in place already by task 5; reduce it "
            "once, after its last write");
}

TEST(Check, RefusesCrossGroupReductionsTooEarlyTwiceOrNever) {
  const HybridShard<FullyShard<>> hybrid{.group = 2};
  const Problem problem = problem_for(hybrid, three_blocks(), 2);
  const Schedule list = make_schedule(hybrid.rules(), problem);
  const auto with = [&](std::ptrdiff_t at, Action action, int group) {
    Schedule other = list;
    other.insert(other.begin() + at, {.action = action, .index = group});
    return error_of(other, problem);
  };
  const auto reduce = std::find(list.begin(), list.end(), Task{.action = Action::reduce, .index = 4}) - list.begin();
  EXPECT_EQ(error_of(list, problem), "");
  expect_parts(with(reduce, Action::reduce_across, 4), {"its gradient is not reduced over the inner axis"});
  expect_parts(with(reduce + 1, Action::reduce_across, 4), {"the gradient of head was reduced across already by task"});
  expect_parts(with(std::ssize(list), Action::reduce_across, 4), {"its gradient was reduced across already by task"});
  Schedule never = list;
  never.pop_back();
  expect_parts(error_of(never, problem), {"reduce embedding: its sum is never reduced across"});
  expect_parts(error_of(list, problem_for(FullyShard<>{}, three_blocks(), 2)), {"crosses no outer axis"});
}

TEST(Check, RefusesShardsThatAreNotGatheredAcrossGroups) {
  const HybridShard<FullyShard<>, OptimizerAcross::sharded> full{.group = 2};
  const Problem problem = problem_for(full, three_blocks(), 1);
  Schedule list = make_schedule(full.rules(), problem);
  EXPECT_EQ(error_of(list, problem), "");
  list.erase(list.begin());
  EXPECT_EQ(error_of(list, problem),
            "sharding: task 0, gather embedding: the shards of embedding were not gathered across before");
}

TEST(Check, RefusesToGatherFromPartsThatNoRankKept) {
  const FullyShard<ReshardAfterForward::to_group> strategy{.group = 2};
  Problem problem = problem_for(strategy, three_blocks(), 1);
  Schedule list = make_schedule(strategy.rules(), problem);
  EXPECT_EQ(error_of(list, problem), "");
  set_axes(problem, {.shard = 4, .keep = 4});
  EXPECT_EQ(error_of(list, problem),
            "sharding: task 6, keep block 0: no ranks keep weights together under this strategy on this mesh");
  set_axes(problem, {.shard = 4, .keep = 2});
  Schedule early = list;
  std::iter_swap(early.begin() + 5, early.begin() + 6);  // moves the keep task of block 0 before its forward
  EXPECT_EQ(error_of(early, problem),
            "sharding: task 5, keep block 0: no computation used its weights since they were gathered");
  std::erase(list, Task{.action = Action::keep, .index = 1});
  expect_parts(error_of(list, problem), {"gather-in-group block 0: no rank kept a part of its weights before"});
}

TEST(Check, RefusesASlotThatTwoGroupsUseAtOnce) {
  Spoiled weights(1, true);
  weights.task(Action::gather, 1).slot = 0;
  EXPECT_EQ(weights.error(), "sharding: task 1, gather block 0: slot 0 is held by embedding since task 0");
  Spoiled gradients(2, true);
  EXPECT_EQ(gradients.error(), "");
  gradients.without(Action::close_gradient, 4);
  expect_parts(gradients.error(), {"open-gradient block 2: slot 0 is held by head since task "});
  Spoiled other(1, true);
  other.task(Action::release, 0).slot = 1;
  EXPECT_EQ(other.error(), "sharding: task 3, release embedding: it is in slot 0, not 1");
  Spoiled number(1, true);
  number.task(Action::gather, 0).slot = 1'000'000;
  expect_parts(number.error(), {"slot 1000000 is no number of a slot"});
}

TEST(Check, RefusesGradientsWrittenOrReducedOutsideTheirSlot) {
  expect_parts(Spoiled(1, true).without(Action::open_gradient, 3).error(),
               {"backward block 2: the gradient of block 2 has no open slot"});
  Spoiled early(1, true);
  const auto close = early.at(Action::close_gradient, 4);
  early.insert(early.at(Action::loss, 4) + 1, {.action = Action::close_gradient, .index = 4});
  expect_parts(early.error(), {"close-gradient head: its gradient, written by task "});
  EXPECT_GT(close, 0);
  Spoiled still(2, true);
  still.without(Action::close_gradient, 0).without(Action::open_gradient, 0, 1).without(Action::close_gradient, 0);
  EXPECT_NE(still.error(), "");
}

TEST(Check, RefusesOutOfRangeGroupAndUnitNumbers) {
  Spoiled group;
  group.task(Action::gather, 0).index = 5;
  EXPECT_EQ(group.error(), "sharding: task 0, gather group 5: there are 5 of these");
  Spoiled unit;
  unit.task(Action::forward, 0).index = -1;
  EXPECT_EQ(unit.error(), "sharding: task 2, forward unit -1: there are 5 of these");
}

TEST(Check, GenerationMustKeepGatheredWeights) {
  Problem problem = problem_for(FullyShard<>{}, three_blocks(), 1, Pass::generate);
  const Schedule first = make_schedule(FullyShard<>{}.rules(), problem);
  EXPECT_EQ(error_of(first, problem), "");
  problem.pass = Pass::evaluate;
  expect_parts(error_of(first, problem), {"its weights are never released"});
  const Schedule evaluation = make_schedule(FullyShard<>{}.rules(), problem);
  problem.pass = Pass::generate;
  EXPECT_EQ(error_of(evaluation, problem),
            "sharding: task 3, release embedding: a pass that generates keeps what it gathered; leave this out");
  problem.pass = Pass::generate_again;
  EXPECT_EQ(error_of(first, problem),
            "sharding: task 0, gather embedding: its weights are still gathered from the pass before; leave this out");
}

/// Calls f(text, rules, problem) for the schedules of all strategies over many problems.
void for_each_list(const std::function<void(const std::string&, const Rules&, const Problem&)>& f) {
  const auto over_problems = [&](const auto& strategy, const std::string& name) {
    std::vector<std::vector<UnitUse>> models{three_blocks(), three_blocks_tied(), three_blocks(), three_blocks()};
    models[2][1].groups = {1, 5};  // small tensors of block 1 are a separate group
    models[3][2].groups = {1};     // blocks 1 and 2 share one group, block 3 and the head another
    models[3][3].groups = {2};
    models[3][4].groups = {2, 3};
    for (const auto& [model, units] : ranges::views::enumerate(models))
      for (const Pass pass : {Pass::train, Pass::evaluate, Pass::generate, Pass::generate_again})
        for (const int micro_batches : pass == Pass::train ? std::vector{1, 2, 3} : std::vector{1})
          for (const int variant : {0, 1, 2, 3, 4}) {
            Problem problem = problem_for(strategy, units, micro_batches, pass);
            problem.overlap = variant % 2 == 1;
            for (GroupFacts& group : problem.groups) group.held_to_head = variant != 2;
            for (GroupFacts& group : problem.groups) group.slot_elements = group.resident || variant == 4 ? 0 : 64;
            for (GroupFacts& group : problem.groups) group.elements = 10;
            if (model == 2) problem.groups[5].persistent = true;
            if (variant == 1) problem.groups[0].trainable = problem.groups[2].trainable = false;
            if (variant == 3) problem.groups[1] = {.resident = true, .elements = 10};
            f(message(name, ", model ", model, ", pass ", static_cast<int>(pass), ", ", micro_batches,
                      " micro-batches, variant ", variant),
              strategy.rules(), problem);
          }
  };
  for (const int depth : {0, 1, 2, 5}) {
    over_problems(FullyShard<>{.prefetch_depth = depth}, "fsdp2");
    over_problems(FullyShard<>{.prefetch_depth = depth, .reduce = ReduceGradients::last_micro_batch}, "fsdp2 deferred");
    over_problems(FullyShard<ReshardAfterForward::no>{.prefetch_depth = depth}, "fsdp2:no-reshard");
    over_problems(FullyShard<ReshardAfterForward::to_group>{.prefetch_depth = depth, .group = 2}, "fsdp2:2");
    over_problems(Zero3{.prefetch_depth = depth, .persistence_threshold = 4}, "zero3");
    over_problems(Zero3{.prefetch_depth = depth, .live_bound = 30}, "zero3 with a bound");
  }
  over_problems(Zero1{}, "zero1");
  over_problems(Zero2{}, "zero2");
  over_problems(Replicated{}, "replicated");
  over_problems(HybridShard<FullyShard<>>{.group = 2}, "hybrid of fsdp2");
  over_problems(HybridShard<Zero1>{.group = 2}, "hybrid of zero1");
  over_problems(HybridShard<Zero3, OptimizerAcross::sharded>{.group = 2}, "full hybrid of zero3");
  over_problems(HybridShard<Zero2, OptimizerAcross::sharded>{.group = 2}, "full hybrid of zero2");
}

TEST(Check, AcceptsTheSchedulesOfAllStrategies) {
  int lists = 0;
  for_each_list([&](const std::string& text, const Rules& rules, const Problem& problem) {
    SCOPED_TRACE(text);
    const Schedule list = make_schedule(rules, problem);
    EXPECT_EQ(error_of(list, problem), "");
    const Schedule placed = assign_slots(list, problem);
    EXPECT_EQ(error_of(placed, problem), "");
    EXPECT_EQ(assign_slots(placed, problem), placed);
    ++lists;
  });
  EXPECT_GT(lists, 3000);
}

/// No task of a schedule with slots may be missing or duplicated. Exception: `keep` tasks may be repeated, since the
/// weights do not change, and are needed in the first micro-batch only.
TEST(Check, RefusesSchedulesWithAMissingOrDuplicatedTask) {
  for_each_list([&](const std::string& text, const Rules& rules, const Problem& problem) {
    if (rules.prefetch_depth != 1 || (problem.pass == Pass::train && problem.micro_batches != 2)) return;
    const Schedule placed = assign_slots(make_schedule(rules, problem), problem);
    for (const auto& [i, task] : ranges::views::enumerate(placed)) {
      const bool keeps = task.action == Action::keep;
      Schedule other = placed;
      other.insert(other.begin() + static_cast<std::ptrdiff_t>(i), task);
      if (!keeps) {
        EXPECT_NE(error_of(other, problem), "") << text << ": twice " << i << ' ' << text_of(task, names);
      }
      other = placed;
      other.erase(other.begin() + static_cast<std::ptrdiff_t>(i));
      if (!keeps || task.micro_batch == 0) {
        EXPECT_NE(error_of(other, problem), "") << text << ": without " << i << ' ' << text_of(task, names);
      }
    }
  });
}

TEST(Check, DigestsDifferIfAnyFieldOfATaskDiffers) {
  const Schedule list = {{.action = Action::gather, .index = 1, .micro_batch = 2, .slot = 3}};
  Schedule other = list;
  EXPECT_EQ(digest_of(other), digest_of(list));
  for (const auto& change : {Task{.action = Action::release, .index = 1, .micro_batch = 2, .slot = 3},
                             Task{.action = Action::gather, .index = 2, .micro_batch = 2, .slot = 3},
                             Task{.action = Action::gather, .index = 1, .micro_batch = 1, .slot = 3},
                             Task{.action = Action::gather, .index = 1, .micro_batch = 2, .slot = 4}}) {
    other = {change};
    EXPECT_NE(digest_of(other), digest_of(list));
  }
  EXPECT_NE(digest_of({}), digest_of(list));
}

}  // namespace
}  // namespace fsdp::sharding

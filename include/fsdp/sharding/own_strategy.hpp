// SPDX-License-Identifier: Apache-2.0
/// @file
/// For user-defined strategies: checks the schedules of a strategy at compile time.
///
/// Include this before the first Stack of a user-defined strategy. The Stack then rejects a strategy whose schedules
/// cannot run, as `static_assert(sharding::holds<Strategy>())` does next to the strategy. A strategy whose functions
/// are not constexpr needs the header too; its schedules are checked when a module is constructed, as are other
/// numbers, models and orders.
///
/// The rules are in check_schedule.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/fsdp/sharding/check_result.hpp>
#include <tessera/fsdp/sharding/check_schedule.hpp>
#include <tessera/fsdp/sharding/event_order.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/scheduler.hpp>
#include <tessera/fsdp/sharding/slot_assigner.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp::sharding {

/// A test case: a small model and a pass over it. The embedding, each block and the head have one group each. If
/// weights are tied, the embedding's table is a separate group that the head uses too. With several micro-batches,
/// collectives overlap computation. With three blocks, the inputs of the first two are offloaded to host memory.
struct TestCase {
  int blocks = 1;           ///< number of blocks, 1 to 3
  bool tied = false;        ///< whether the head uses the embedding's table
  int micro_batches = 1;    ///< number of micro-batches of a step
  Pass pass = Pass::train;  ///< kind of pass

  /// Returns the facts of a group on a mesh of 4 ranks, or of 2 x 2 ranks if its strategy uses the outer axis.
  static constexpr GroupFacts group(const Facts& facts, bool resident) {
    return {.resident = resident,
            .across = facts.across,
            .elements = 1,
            .slot_elements = resident ? 0 : 1,
            .axes = facts.across != Across::nothing ? Axes{.shard = 2, .across = 2}
                                                    : Axes{.shard = 4, .keep = facts.group_after_forward ? 2 : 0}};
  }
  /// Returns the problem of a strategy with these facts.
  constexpr Problem problem(const Facts& facts, bool resident) const {
    Problem problem;
    const int head = blocks + 1;
    problem.units.reserve(static_cast<std::size_t>(head + 1));
    for (int unit = 0; unit <= head; ++unit) problem.units.push_back({.groups = {unit}});
    problem.units.front().backward_needs_weights = false;
    for (int unit = 1; blocks == 3 && unit < blocks; ++unit)
      problem.units[static_cast<std::size_t>(unit)].offloads_input = true;
    if (tied) {
      problem.units.front().groups = {0, head + 1};
      problem.units.back().groups = {head, head + 1};
    }
    problem.groups.assign(static_cast<std::size_t>(head + (tied ? 2 : 1)), group(facts, resident));
    problem.micro_batches = micro_batches;
    problem.pieces = facts.pieces;
    problem.pass = pass;
    problem.overlap = micro_batches > 1;
    return problem;
  }
  friend constexpr bool operator==(const TestCase&, const TestCase&) = default;
};

/// All test cases: 1 to 3 blocks, with and without tied weights, 1 and 2 micro-batches, all kinds of pass.
inline constexpr auto test_cases = [] {
  std::array<TestCase, 3 * 2 * 2 * pass_count> list{};
  std::size_t at = 0;
  for (int blocks = 1; blocks <= 3; ++blocks)
    for (const bool tied : {false, true})
      for (int micro_batches = 1; micro_batches <= 2; ++micro_batches)
        for (std::size_t pass = 0; pass < pass_count; ++pass)
          list[at++] = {blocks, tied, micro_batches, static_cast<Pass>(pass)};
  return list;
}();

/// An error message as a template argument, which compilers print.
struct MessageText {
  char text[600] = {};  ///< null-terminated

  /// Returns the message.
  constexpr std::string_view view() const { return text; }
  /// Appends text; text beyond the capacity is dropped.
  constexpr MessageText& operator+=(std::string_view more) {
    const std::size_t size = view().size();
    std::copy_n(more.begin(), std::min(more.size(), sizeof(text) - 1 - size), text + size);
    return *this;
  }
};

namespace detail {

/// Names of a test case's units and groups.
struct TestCaseNames {
  std::vector<std::string_view> units = {"embedding"};
  std::vector<std::string_view> groups;

  constexpr explicit TestCaseNames(const TestCase& test_case) {
    constexpr std::string_view blocks[] = {"block 0", "block 1", "block 2"};
    units.insert(units.end(), blocks, blocks + test_case.blocks);
    units.push_back("head");
    groups = units;
    groups.push_back("tied weights");
  }
};

/// The results of the checks of a schedule: the result of `check_schedule`, and the race that was found, if any
/// (event_order.hpp).
struct Findings {
  CheckResult result = {};
  Race race = {};

  constexpr bool good() const { return result.holds() && race == Race{}; }
  friend constexpr bool operator==(const Findings&, const Findings&) = default;
};

/// The schedule of a strategy with default numbers in a test case, and the results of its checks. Of a strategy per
/// unit, that of the first assignment of parts to groups that breaks a rule.
template <class S>
struct TestedCase {
  Problem problem;
  Schedule schedule;
  Findings findings;

  constexpr explicit TestedCase(const TestCase& test_case) {
    if constexpr (requires { S::default_rules(); }) {
      // Group g has part (first + g) % parts: every part takes the place of every group once.
      for (std::size_t first = 0; first < S::default_rules().size() && findings.good(); ++first) {
        assign_parts(test_case, first);
        check(make_schedule_of_groups({}, problem));
      }
    } else {
      const S strategy{};
      problem = test_case.problem(facts_of(strategy), facts_of(strategy).whole_at_rest);
      if constexpr (GivesSchedule<S>)
        check(strategy.schedule(problem));
      else
        check(make_schedule(strategy.rules(), problem));
    }
  }

 private:
  /// Sets the problem of a strategy per unit.
  constexpr void assign_parts(const TestCase& test_case, std::size_t first) {
    const auto rules = S::default_rules();
    problem = test_case.problem({.pieces = may_have_pieces<S> ? 1 : 0}, false);
    for (GroupFacts& group : each(problem.groups)) {
      const Rules& own = rules[first++ % rules.size()];
      group = TestCase::group(own.facts, own.facts.whole_at_rest);
      group.hold = hold_of(own, group.axes);
      group.reduce_every_micro_batch = own.reduce_every_micro_batch || may_have_pieces<S>;
    }
  }
  constexpr void check(Schedule list) {
    schedule = std::move(list);
    findings.result = check_schedule(schedule, problem);
    if (!findings.good()) return;
    schedule = with_slots(schedule, problem);
    findings.result = check_schedule(schedule, problem);
    if (findings.good() && problem.overlap) findings.race = first_race(schedule, problem);
  }
};

template <class S>
constexpr Findings findings_in(const TestCase& test_case) {
  return TestedCase<S>(test_case).findings;
}

/// The error message of a rejected test case, and the invalid task.
/// @{
template <class S>
constexpr MessageText message_in(const TestCase& test_case) {
  const TestedCase<S> tested(test_case);
  const TestCaseNames names(test_case);
  MessageText sentence;
  MessageWriter(sentence, tested.schedule, tested.problem, names).write(tested.findings.result);
  return sentence;
}
template <class S>
constexpr Task task_in(const TestCase& test_case) {
  const TestedCase<S> tested(test_case);
  const int at = tested.findings.result.at;
  return at == no_task ? Task{} : tested.schedule[static_cast<std::size_t>(at)];
}
/// @}

/// The number of leading test cases that a strategy passes. If it does not pass all, `known` is whether the next one
/// could be checked; this is not possible if a function of the strategy is not constexpr, or throws.
struct Extent {
  std::size_t good = 0;  ///< number of leading test cases that pass
  bool known = true;
};

/// Whether a test case passes, and whether this is known. The findings are evaluated once, as a template argument: if
/// they are not a constant expression, overload resolution selects the second function.
/// @{
template <class S, std::size_t number, Findings findings = findings_in<S>(test_cases[number])>
constexpr Extent extent_at(int) {
  return {.good = findings.good() ? number + 1 : number, .known = true};
}
template <class S, std::size_t number>
constexpr Extent extent_at(...) {
  return {.good = number, .known = false};
}
/// @}

/// Each test case is a separate constant evaluation, since compilers limit the number of steps of one evaluation.
template <class S, std::size_t number = 0>
constexpr Extent find_extent() {
  if constexpr (number == test_cases.size()) {
    return {.good = number};
  } else {
    constexpr Extent here = extent_at<S, number>(0);
    if constexpr (here.good > number)
      return find_extent<S, number + 1>();
    else
      return here;
  }
}
template <class S>
inline constexpr Extent extent_of = {.known = false};
template <class S>
requires std::default_initializable<S>
inline constexpr Extent extent_of<S> = find_extent<S>();

/// Expands to the static_assert of a violation.
#define FSDP_SHARDING_VIOLATION(name, text)   \
  static_assert(violation != Violation::name, \
                "fsdp: a sharding strategy's schedule cannot run; `sentence` of the note names the task: " text);

/// Rejects a strategy. Compilers print the template arguments: `sentence` is the message that `check` would throw, and
/// the arguments before it identify the task.
template <class Strategy, TestCase test_case, Violation violation, int task, Action action, int index,
          MessageText sentence>
consteval void refuse() {
  static_assert(violation != Violation::none,
                "fsdp: a sharding strategy's schedule uses memory on two queues without an event between them, which "
                "sharding::check_schedule should have refused; please report it");
  FSDP_SHARDING_VIOLATIONS(FSDP_SHARDING_VIOLATION)
}
#undef FSDP_SHARDING_VIOLATION

template <class S, TestCase test_case>
consteval void refuse_in() {
  constexpr CheckResult result = findings_in<S>(test_case).result;
  constexpr Task task = task_in<S>(test_case);
  constexpr MessageText sentence = message_in<S>(test_case);
  refuse<S, test_case, result.violation, result.at, task.action, task.index, sentence>();
}

}  // namespace detail

/// Whether a strategy can be checked at compile time: it is default-constructible, and the functions that produce its
/// schedules are constexpr.
template <class S>
inline constexpr bool checked_at_compile_time = detail::extent_of<S>.known;
template <class S>
inline constexpr bool judged_while_compiling = checked_at_compile_time<S>;  ///< its former name, for this version

/// Returns true if the schedules of a strategy with default numbers can run in all test cases. Does not compile if one
/// cannot; the first error then reports which rule it breaks, and where.
template <class S>
consteval bool holds() {
  static_assert(checked_at_compile_time<S>,
                "fsdp: a sharding strategy's schedule cannot be checked at compile time, since the strategy has no "
                "default value, or its rules(), or its schedule(problem) and facts(), are not constexpr; make them so, "
                "or leave this out: sharding::check checks the schedule when a module is made");
  constexpr detail::Extent extent = detail::extent_of<S>;
  if constexpr (extent.known && extent.good < test_cases.size()) detail::refuse_in<S, test_cases[extent.good]>();
  return true;
}

}  // namespace fsdp::sharding

namespace fsdp::detail {

/// The check that a Stack instantiates (strategy.hpp).
template <class S>
struct OwnStrategy {
  static consteval void check() {
    if constexpr (sharding::checked_at_compile_time<S>) sharding::holds<S>();
  }
};

}  // namespace fsdp::detail

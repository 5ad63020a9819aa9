// SPDX-License-Identifier: Apache-2.0
/// @file
/// The result of validating a schedule: a value from which the error message is built, at run time or at compile time.
///
/// The rules and their messages are in violations.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/violations.hpp>

namespace fsdp::sharding {

/// Sentinel for the number of a task.
inline constexpr int no_task = -1;

/// The result of `check_schedule`: the first violation that it found, and the numbers that its message mentions. A list
/// without a violation is valid.
struct CheckResult {
  Violation violation = Violation::none;  ///< the violation; none if the list is valid
  int at = no_task;                       ///< number of the task that breaks the rule; no_task for the list as a whole
  int other = no_task;                    ///< number of another task that the rule depends on; no_task if there is none
  int group = 0;            ///< index of the group of weights, or of the unit, that the violation is about
  std::int64_t number = 0;  ///< a number of units, groups or tasks, or a slot's number
  Task expected = {};       ///< the computation or exchange that was expected

  /// Whether the list breaks no rule.
  constexpr bool holds() const { return violation == Violation::none; }
  friend constexpr bool operator==(const CheckResult&, const CheckResult&) = default;
};

using Verdict = CheckResult;  ///< its former name, for this version

/// Appends the message of a result to a `Text`, which has `+= std::string_view`. `NameLists` has the lists `units` and
/// `groups` of strings.
template <class Text, class NameLists>
class MessageWriter {
 public:
  /// All arguments must outlive it.
  constexpr MessageWriter(Text& text, const Schedule& schedule, const Problem& problem, const NameLists& names)
      : text_(text), schedule_(schedule), problem_(problem), names_(names) {}

  /// Appends the message of a result that has a violation.
  constexpr void write(const CheckResult& result) {
    text_ += "sharding: ";
    if (result.at != no_task) {
      add_named_task(result.at);
      text_ += ": ";
    }
    std::string_view rest = message_of(result.violation);
    while (!rest.empty()) {
      const std::size_t open = std::min(rest.find('{'), rest.size());
      text_ += rest.substr(0, open);
      if (open == rest.size()) break;
      const std::size_t close = rest.find('}');
      fill_in(rest.substr(open + 1, close - open - 1), result);
      rest.remove_prefix(close + 1);
    }
    if (result.at != no_task) add_context(result.at);
  }

 private:
  constexpr const Task& task_at(int number) const { return schedule_[static_cast<std::size_t>(number)]; }

  constexpr void fill_in(std::string_view what, const CheckResult& result) {
    if (what == "other") add_number(result.other);
    if (what == "other task") add_named_task(result.other);
    if (what == "group") add_subject({.action = Action::gather, .index = result.group});
    if (what == "unit") add_subject({.action = Action::forward, .index = result.group});
    if (what == "number") add_number(result.number);
    if (what == "slot") add_number(task_at(result.at).slot);
    if (what == "expected") {
      add_task(result.expected);
      text_ += " of micro-batch ";
      add_number(result.expected.micro_batch);
    }
  }
  /// "task 17, release block 2".
  constexpr void add_named_task(int number) {
    text_ += "task ";
    add_number(number);
    text_ += ", ";
    add_task(task_at(number));
  }
  constexpr void add_task(const Task& task) {
    text_ += name_of(task.action);
    text_ += " ";
    add_subject(task);
    add_stage(task);
  }
  /// " between 0", of a unit that has stages.
  constexpr void add_stage(const Task& task) {
    if (!works_on_unit(task.action) || task.index < 0 || static_cast<std::size_t>(task.index) >= problem_.units.size())
      return;
    const std::vector<Stage> stages = stages_of(problem_.unit(task.index).stages);
    if (task.stage < 0 || static_cast<std::size_t>(task.stage) >= stages.size()) return;
    const Stage& stage = stages[static_cast<std::size_t>(task.stage)];
    text_ += " ";
    text_ += name_of(stage.step);
    text_ += " ";
    add_number(stage.part);
  }
  constexpr void add_subject(const Task& task) {
    const bool of_unit = works_on_unit(task.action);
    const auto& list = of_unit ? names_.units : names_.groups;
    const auto index = static_cast<std::size_t>(task.index);
    if (index < list.size()) {
      text_ += std::string_view(list[index]);
      return;
    }
    text_ += of_unit ? "unit " : "group ";
    add_number(task.index);
  }
  /// The tasks around a task: " [training, tasks 2 to 4: gather block 0, forward block 0, release block 0]".
  constexpr void add_context(int at) {
    constexpr int near = 2;
    const int begin = std::max(at - near, 0);
    const int end = std::min(at + near, static_cast<int>(schedule_.size()) - 1);
    text_ += " [";
    text_ += name_of(problem_.pass);
    text_ += ", tasks ";
    add_number(begin);
    text_ += " to ";
    add_number(end);
    text_ += ":";
    for (int i = begin; i <= end; ++i) {
      text_ += i == begin ? " " : ", ";
      add_task(task_at(i));
    }
    text_ += "]";
  }
  constexpr void add_number(std::int64_t value) {
    if (value < 0) text_ += "-";
    const std::int64_t most = value / 10;
    const std::int64_t last = value % 10;
    if (most != 0) add_number(most < 0 ? -most : most);
    text_ += std::string_view("0123456789").substr(static_cast<std::size_t>(last < 0 ? -last : last), 1);
  }

  Text& text_;
  const Schedule& schedule_;
  const Problem& problem_;
  const NameLists& names_;
};

}  // namespace fsdp::sharding

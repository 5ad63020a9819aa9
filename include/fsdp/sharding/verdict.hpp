// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a judge says of a schedule: a value, from which the sentence is made, at run time or while compiling.
///
/// Not here: the rules themselves (judge.hpp). To add one: its name and sentence in FSDP_SHARDING_BREACHES, the test in
/// judge.hpp, and a list that breaks it in tests/support/broken_lists.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

/// Every way in which a list breaks a rule, and its sentence. What stands in braces is filled in from the verdict. This
/// is a macro because a static_assert takes literals only.
#define FSDP_SHARDING_BREACHES(BREACH)                                                                               \
  BREACH(sent_after_wait,                                                                                            \
         "task {other} may wait for a reduction, so that this is sent at a time that depends on timing; put it "     \
         "before task {other}, or after the next computation")                                                       \
  BREACH(no_such_index, "there are {number} of these")                                                               \
  BREACH(no_slot_number,                                                                                             \
         "slot {number} is no number of a slot; give one from 0 on, or -1 to leave it to sharding::assign_slots")    \
  BREACH(gathers_resident, "its weights are whole on every rank at rest; leave this out")                            \
  BREACH(gathers_again, "its weights are still gathered from the pass before; leave this out")                       \
  BREACH(gathered_twice, "its weights were gathered already by task {other} and not released since")                 \
  BREACH(not_used, "no computation used its weights since they were gathered")                                       \
  BREACH(not_gathered_across, "the shards of {group} were not gathered across before")                               \
  BREACH(slot_held, "slot {number} is held by {group} since task {other}")                                           \
  BREACH(none_kept, "no rank kept a part of its weights before")                                                     \
  BREACH(keeps_no_parts, "no ranks keep weights together under this strategy on this mesh")                          \
  BREACH(not_gathered, "its weights are not gathered")                                                               \
  BREACH(not_sharded_across, "the optimizer's part of it is not sharded over an outer axis; leave this out")         \
  BREACH(gathers_across_again, "its shards are still whole from the pass before; leave this out")                    \
  BREACH(gathered_across_twice, "its shards were gathered across already by task {other}")                           \
  BREACH(releases_kept, "a pass that generates keeps what it gathered; leave this out")                              \
  BREACH(nothing_to_compute, "nothing is left to compute")                                                           \
  BREACH(computed_out_of_order, "the next computation is {expected}")                                                \
  BREACH(released_before_use,                                                                                        \
         "its weights are still used by {other task}; release them after it, or gather them again before it")        \
  BREACH(used_ungathered, "the weights of {group} are not gathered; gather them before")                             \
  BREACH(written_after_across,                                                                                       \
         "the gradient of {group} was reduced across already by task {other}; reduce it across after its last "      \
         "write")                                                                                                    \
  BREACH(pieces_mixed,                                                                                               \
         "the gradient of {group} still holds what task {other} added in the micro-batch before, and a strategy "    \
         "whose steps are cut into pieces reduces each by itself; reduce it in every micro-batch")                   \
  BREACH(piece_reduced_before,                                                                                       \
         "the gradient of {group} was reduced by task {other}, and a strategy whose steps are cut into pieces "      \
         "reduces each once; reduce it after its last write")                                                        \
  BREACH(written_after_all_reduce,                                                                                   \
         "the gradient of {group} was all-reduced in place already by task {other}; reduce it once, after its last " \
         "write")                                                                                                    \
  BREACH(written_without_slot, "the gradient of {group} has no open slot")                                           \
  BREACH(written_while_reduced,                                                                                      \
         "the gradient slot of {group} is still read by its reduction, task {other}; close it and open it again "    \
         "before")                                                                                                   \
  BREACH(opens_no_gradient, "no gradient of it is made in this pass")                                                \
  BREACH(opened_twice, "its gradient was opened already by task {other}")                                            \
  BREACH(reduced_twice, "nothing was added to its gradient since it was reduced by task {other}")                    \
  BREACH(reduces_nothing, "nothing was added to its gradient")                                                       \
  BREACH(crosses_no_axis, "its gradient crosses no outer axis; leave this out")                                      \
  BREACH(not_reduced_inside, "its gradient is not reduced over the inner axis")                                      \
  BREACH(reduced_across_twice, "its gradient was reduced across already by task {other}")                            \
  BREACH(not_open, "its gradient is not open")                                                                       \
  BREACH(closed_unreduced, "its gradient, written by task {other}, is not reduced yet")                              \
  BREACH(in_other_slot, "it is in slot {number}, not {slot}")                                                        \
  BREACH(offloads_no_input, "its input stays on the device in this pass; leave this out")                            \
  BREACH(sent_out_of_turn,                                                                                           \
         "its input is not there; send it between the computation that makes it and the unit's own forward")         \
  BREACH(sent_twice, "its input was sent already by task {other}")                                                   \
  BREACH(never_sent, "its input is needed again in backward and was not sent to host memory; send it before")        \
  BREACH(fetched_unsent, "its input is not in host memory; send it before its forward, and fetch it after the loss") \
  BREACH(fetched_twice, "its input was fetched already by task {other}")                                             \
  BREACH(fetched_late, "its input is in host memory until task {other}; fetch it before")                            \
  BREACH(never_fetched, "its input is in host memory and never fetched; fetch it before")                            \
  BREACH(no_such_buffer, "inputs use {number} buffers in turn, and slot {slot} is none of them")                     \
  BREACH(buffer_held, "buffer {slot} still holds the input of {unit}; fetch it after that unit is computed")         \
  BREACH(ends_early, "the list of {number} tasks ends before {expected}")                                            \
  BREACH(never_reduced, "what it adds to the gradient of {group} is never reduced")                                  \
  BREACH(never_reduced_across, "its sum is never reduced across")                                                    \
  BREACH(never_released, "its weights are never released")                                                           \
  BREACH(never_closed, "its slot is never closed")                                                                   \
  BREACH(not_exchanged, "it reads what {expected} brings; exchange it before")                                       \
  BREACH(exchanges_nothing, "the unit has no such exchange, or its forward has not begun")                           \
  BREACH(exchanged_early, "what it moves is not computed yet; put it behind the stage that makes it")                \
  BREACH(exchanged_twice, "task {other} exchanged this already")

/// How a list breaks a rule.
enum class Breach : std::uint8_t {
  none,
/// An enumerator.
#define FSDP_SHARDING_BREACH(name, sentence) name,
  FSDP_SHARDING_BREACHES(FSDP_SHARDING_BREACH)
#undef FSDP_SHARDING_BREACH
};

/// Returns the breach's sentence, in which names and numbers are still missing.
constexpr std::string_view sentence_of(Breach breach) {
  switch (breach) {
    case Breach::none:
      break;
/// A case of the switch.
#define FSDP_SHARDING_BREACH(name, sentence) \
  case Breach::name: return sentence;
      FSDP_SHARDING_BREACHES(FSDP_SHARDING_BREACH)
#undef FSDP_SHARDING_BREACH
  }
  return {};
}

/// In place of the number of a task.
inline constexpr int no_task = -1;

/// What a judge says: the first breach of a rule that it found, and what its sentence names. A list without a breach is
/// good.
struct Verdict {
  Breach breach = Breach::none;  ///< what is wrong; none: nothing
  int at = no_task;              ///< number of the task that breaks the rule; no_task: the list as a whole
  int other = no_task;           ///< number of another task, where the sentence names one
  int group = 0;                 ///< of weights, where the sentence names another than the task's; or a unit
  std::int64_t number = 0;       ///< of units, groups, tasks, or of a slot
  Task expected = {};            ///< the computation or exchange that should come

  /// Whether the list breaks no rule.
  constexpr bool holds() const { return breach == Breach::none; }
  friend constexpr bool operator==(const Verdict&, const Verdict&) = default;
};

/// Writes the sentence of a verdict to the end of a `Text`, which has `+= std::string_view`. `NameLists` has the lists
/// `units` and `groups` of strings.
template <class Text, class NameLists>
class SentenceWriter {
 public:
  /// All arguments must outlive it.
  constexpr SentenceWriter(Text& text, const Schedule& schedule, const Problem& problem, const NameLists& names)
      : text_(text), schedule_(schedule), problem_(problem), names_(names) {}

  /// Adds the sentence of a verdict that breaks a rule.
  constexpr void write(const Verdict& verdict) {
    text_ += "sharding: ";
    if (verdict.at != no_task) {
      add_named_task(verdict.at);
      text_ += ": ";
    }
    std::string_view rest = sentence_of(verdict.breach);
    while (!rest.empty()) {
      const std::size_t open = std::min(rest.find('{'), rest.size());
      text_ += rest.substr(0, open);
      if (open == rest.size()) break;
      const std::size_t close = rest.find('}');
      fill_in(rest.substr(open + 1, close - open - 1), verdict);
      rest.remove_prefix(close + 1);
    }
    if (verdict.at != no_task) add_context(verdict.at);
  }

 private:
  constexpr const Task& task_at(int number) const { return schedule_[static_cast<std::size_t>(number)]; }

  constexpr void fill_in(std::string_view what, const Verdict& verdict) {
    if (what == "other") add_number(verdict.other);
    if (what == "other task") add_named_task(verdict.other);
    if (what == "group") add_subject({.action = Action::gather, .index = verdict.group});
    if (what == "unit") add_subject({.action = Action::forward, .index = verdict.group});
    if (what == "number") add_number(verdict.number);
    if (what == "slot") add_number(task_at(verdict.at).slot);
    if (what == "expected") {
      add_task(verdict.expected);
      text_ += " of micro-batch ";
      add_number(verdict.expected.micro_batch);
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
  /// A task's neighbourhood: " [training, tasks 2 to 4: gather block 0, forward block 0, release block 0]".
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

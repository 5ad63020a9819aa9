// SPDX-License-Identifier: Apache-2.0
/// @file
/// The violations that a schedule may contain, the error message of each, and the rules of actions on groups. The rules
/// of computations and of activation transfers are in check_schedule.hpp.
///
/// To add a violation, add its name and message to FSDP_SHARDING_VIOLATIONS, detect it in a row of group_rules or in
/// check_schedule.hpp, and add a schedule that triggers it to tests/support/broken_lists.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/fsdp/sharding/actions.hpp>

namespace fsdp::sharding {

/// Every violation, with its message. The fields in braces are filled in from the result. This is a macro because
/// static_assert takes literals only.
#define FSDP_SHARDING_VIOLATIONS(VIOLATION)                                                                          \
  VIOLATION(sent_after_wait,                                                                                         \
            "task {other} may wait for a reduction, so that this is sent at a time that depends on timing; put it "  \
            "before task {other}, or after the next computation")                                                    \
  VIOLATION(no_such_index, "there are {number} of these")                                                            \
  VIOLATION(no_slot_number,                                                                                          \
            "slot {number} is no number of a slot; give one from 0 on, or -1 to leave it to sharding::assign_slots") \
  VIOLATION(gathers_resident, "its weights are whole on every rank at rest; leave this out")                         \
  VIOLATION(gathers_again, "its weights are still gathered from the pass before; leave this out")                    \
  VIOLATION(gathered_twice, "its weights were gathered already by task {other} and not released since")              \
  VIOLATION(not_used, "no computation used its weights since they were gathered")                                    \
  VIOLATION(not_gathered_across, "the shards of {group} were not gathered across before")                            \
  VIOLATION(slot_held, "slot {number} is held by {group} since task {other}")                                        \
  VIOLATION(none_kept, "no rank kept a part of its weights before")                                                  \
  VIOLATION(keeps_no_parts, "no ranks keep weights together under this strategy on this mesh")                       \
  VIOLATION(not_gathered, "its weights are not gathered")                                                            \
  VIOLATION(not_sharded_across, "the optimizer's part of it is not sharded over an outer axis; leave this out")      \
  VIOLATION(gathers_across_again, "its shards are still whole from the pass before; leave this out")                 \
  VIOLATION(gathered_across_twice, "its shards were gathered across already by task {other}")                        \
  VIOLATION(releases_kept, "a pass that generates keeps what it gathered; leave this out")                           \
  VIOLATION(nothing_to_compute, "nothing is left to compute")                                                        \
  VIOLATION(computed_out_of_order, "the next computation is {expected}")                                             \
  VIOLATION(released_before_use,                                                                                     \
            "its weights are still used by {other task}; release them after it, or gather them again before it")     \
  VIOLATION(used_ungathered, "the weights of {group} are not gathered; gather them before")                          \
  VIOLATION(written_after_across,                                                                                    \
            "the gradient of {group} was reduced across already by task {other}; reduce it across after its last "   \
            "write")                                                                                                 \
  VIOLATION(pieces_mixed,                                                                                            \
            "the gradient of {group} still holds what task {other} added in the micro-batch before, and a strategy " \
            "whose steps are cut into pieces reduces each by itself; reduce it in every micro-batch")                \
  VIOLATION(piece_reduced_before,                                                                                    \
            "the gradient of {group} was reduced by task {other}, and a strategy whose steps are cut into pieces "   \
            "reduces each once; reduce it after its last write")                                                     \
  VIOLATION(                                                                                                         \
      written_after_all_reduce,                                                                                      \
      "the gradient of {group} was all-reduced in place already by task {other}; reduce it once, after its last "    \
      "write")                                                                                                       \
  VIOLATION(written_without_slot, "the gradient of {group} has no open slot")                                        \
  VIOLATION(written_while_reduced,                                                                                   \
            "the gradient slot of {group} is still read by its reduction, task {other}; close it and open it again " \
            "before")                                                                                                \
  VIOLATION(opens_no_gradient, "no gradient of it is made in this pass")                                             \
  VIOLATION(opened_twice, "its gradient was opened already by task {other}")                                         \
  VIOLATION(reduced_twice, "nothing was added to its gradient since it was reduced by task {other}")                 \
  VIOLATION(reduces_nothing, "nothing was added to its gradient")                                                    \
  VIOLATION(crosses_no_axis, "its gradient crosses no outer axis; leave this out")                                   \
  VIOLATION(not_reduced_inside, "its gradient is not reduced over the inner axis")                                   \
  VIOLATION(reduced_across_twice, "its gradient was reduced across already by task {other}")                         \
  VIOLATION(not_open, "its gradient is not open")                                                                    \
  VIOLATION(closed_unreduced, "its gradient, written by task {other}, is not reduced yet")                           \
  VIOLATION(in_other_slot, "it is in slot {number}, not {slot}")                                                     \
  VIOLATION(offloads_no_input, "its input stays on the device in this pass; leave this out")                         \
  VIOLATION(sent_out_of_turn,                                                                                        \
            "its input is not there; send it between the computation that makes it and the unit's own forward")      \
  VIOLATION(sent_twice, "its input was sent already by task {other}")                                                \
  VIOLATION(never_sent, "its input is needed again in backward and was not sent to host memory; send it before")     \
  VIOLATION(fetched_unsent,                                                                                          \
            "its input is not in host memory; send it before its forward, and fetch it after the loss")              \
  VIOLATION(fetched_twice, "its input was fetched already by task {other}")                                          \
  VIOLATION(fetched_late, "its input is in host memory until task {other}; fetch it before")                         \
  VIOLATION(never_fetched, "its input is in host memory and never fetched; fetch it before")                         \
  VIOLATION(no_such_buffer, "inputs use {number} buffers in turn, and slot {slot} is none of them")                  \
  VIOLATION(buffer_held, "buffer {slot} still holds the input of {unit}; fetch it after that unit is computed")      \
  VIOLATION(ends_early, "the list of {number} tasks ends before {expected}")                                         \
  VIOLATION(never_reduced, "what it adds to the gradient of {group} is never reduced")                               \
  VIOLATION(never_reduced_across, "its sum is never reduced across")                                                 \
  VIOLATION(never_released, "its weights are never released")                                                        \
  VIOLATION(never_closed, "its slot is never closed")                                                                \
  VIOLATION(not_exchanged, "it reads what {expected} brings; exchange it before")                                    \
  VIOLATION(exchanges_nothing, "the unit has no such exchange, or its forward has not begun")                        \
  VIOLATION(exchanged_early, "what it moves is not computed yet; put it behind the stage that makes it")             \
  VIOLATION(exchanged_twice, "task {other} exchanged this already")

/// The rule that a schedule breaks.
enum class Violation : std::uint8_t {
  none,
/// Expands to an enumerator.
#define FSDP_SHARDING_VIOLATION(name, sentence) name,
  FSDP_SHARDING_VIOLATIONS(FSDP_SHARDING_VIOLATION)
#undef FSDP_SHARDING_VIOLATION
};

using Breach = Violation;  ///< its former name, for this version

/// Returns the message template of a violation; its fields in braces are not filled in.
constexpr std::string_view message_of(Violation violation) {
  switch (violation) {
    case Violation::none:
      break;
/// Expands to a case of the switch.
#define FSDP_SHARDING_VIOLATION(name, sentence) \
  case Violation::name: return sentence;
      FSDP_SHARDING_VIOLATIONS(FSDP_SHARDING_VIOLATION)
#undef FSDP_SHARDING_VIOLATION
  }
  return {};
}

/// An event in the life of a group. For each mark, the checks store the last task that set it.
enum class Mark : std::uint8_t {
  none,            ///< no mark
  gathered,        ///< gathered, and not released since
  released,        ///< released, and not gathered since
  used,            ///< used since it was gathered
  kept,            ///< ranks store parts of its weights
  crossed,         ///< its shards were gathered over the outer axis
  opened,          ///< gradient slot opened, and not closed since
  written,         ///< gradient written, and not reduced since
  reduced,         ///< its gradient was reduced (Action::reduce)
  reduced_across,  ///< gradient sum reduced over the outer axis
};
/// Number of values of Mark.
inline constexpr std::size_t mark_count = static_cast<std::size_t>(Mark::reduced_across) + 1;

/// A property of a group or of the pass that a rule depends on.
enum class Case : std::uint8_t {
  any,                 ///< always
  resident,            ///< every rank has the whole group at rest
  begins_gathered,     ///< all weights are already gathered when the pass begins
  ends_gathered,       ///< all weights stay gathered when the pass ends
  keeps_no_parts,      ///< no ranks jointly keep the weights after forward
  sharded_across,      ///< the optimizer's part of the group is sharded over the outer axis
  not_sharded_across,  ///< the optimizer's part of the group is not sharded over the outer axis
  crosses_no_axis,     ///< the group's gradient is not reduced over an outer axis
  makes_no_gradient,   ///< the pass computes no gradient of the group
};

/// A rule: a task is refused if its group has the mark `has`, does not have the mark `lacks`, and the case `in`
/// applies.
struct ActionRule {
  Violation violation = Violation::none;  ///< the violation to report; none: this entry and those after it are unused
  Case in = Case::any;                    ///< the case in which the rule applies
  /// Mark that the group has; the task that set it becomes CheckResult::other. Mark::none: no condition.
  Mark has = Mark::none;
  Mark lacks = Mark::none;  ///< mark that the group does not have; Mark::none: no condition
  bool of_earlier = false;  ///< refuse the task that set `has` instead of the current task
};

/// The rules of an action on a group.
struct GroupRules {
  Action action = Action::gather;        ///< the action
  std::array<ActionRule, 6> rules = {};  ///< in the order in which they are checked
  Mark sets = Mark::none;                ///< mark that it sets on the group
  /// Marks that it clears; if the action frees a slot, the first is the mark that was set when the slot was acquired.
  std::array<Mark, 2> clears = {};
};

/// Returns the rules of an action that gathers a group's weights: `own` first, if it has one.
constexpr GroupRules gathers(Action action, const ActionRule& own = {}) {
  const ActionRule common[] = {
      {.violation = Violation::gathers_resident, .in = Case::resident},
      {.violation = Violation::gathers_again, .in = Case::begins_gathered},
      {.violation = Violation::gathered_twice, .has = Mark::gathered},
      // Checked after the others: for a use after a release, another rule reports a more precise error.
      {.violation = Violation::not_used, .has = Mark::released, .lacks = Mark::used, .of_earlier = true},
      {.violation = Violation::not_gathered_across, .in = Case::sharded_across, .lacks = Mark::crossed}};
  GroupRules all{.action = action, .sets = Mark::gathered, .clears = {Mark::released, Mark::used}};
  std::size_t next = 0;
  if (own.violation != Violation::none) all.rules[next++] = own;
  for (const ActionRule& rule : common) all.rules[next++] = rule;
  return all;
}

/// The rules of all actions on groups.
inline constexpr GroupRules group_rules[] = {
    gathers(Action::gather),
    gathers(Action::gather_in_group, {.violation = Violation::none_kept, .lacks = Mark::kept}),
    {.action = Action::gather_across,
     .rules = {{{.violation = Violation::not_sharded_across, .in = Case::not_sharded_across},
                {.violation = Violation::gathers_across_again, .in = Case::begins_gathered},
                {.violation = Violation::gathered_across_twice, .has = Mark::crossed}}},
     .sets = Mark::crossed},
    {.action = Action::keep,
     .rules = {{{.violation = Violation::keeps_no_parts, .in = Case::keeps_no_parts},
                {.violation = Violation::not_gathered, .lacks = Mark::gathered},
                // The first use waits for the gather. Before that, the weights are still in flight.
                {.violation = Violation::not_used, .lacks = Mark::used}}},
     .sets = Mark::kept},
    {.action = Action::release,
     .rules = {{{.violation = Violation::releases_kept, .in = Case::ends_gathered},
                {.violation = Violation::not_gathered, .lacks = Mark::gathered}}},
     .sets = Mark::released,
     .clears = {Mark::gathered}},
    {.action = Action::open_gradient,
     .rules = {{{.violation = Violation::opens_no_gradient, .in = Case::makes_no_gradient},
                {.violation = Violation::opened_twice, .has = Mark::opened}}},
     .sets = Mark::opened},
    {.action = Action::reduce,
     .rules = {{{.violation = Violation::reduced_twice, .has = Mark::reduced, .lacks = Mark::written},
                {.violation = Violation::reduces_nothing, .lacks = Mark::written}}},
     .sets = Mark::reduced,
     .clears = {Mark::written}},
    {.action = Action::reduce_across,
     .rules = {{{.violation = Violation::crosses_no_axis, .in = Case::crosses_no_axis},
                {.violation = Violation::not_reduced_inside, .has = Mark::written},
                {.violation = Violation::not_reduced_inside, .lacks = Mark::reduced},
                {.violation = Violation::reduced_across_twice, .has = Mark::reduced_across}}},
     .sets = Mark::reduced_across},
    {.action = Action::close_gradient,
     .rules = {{{.violation = Violation::not_open, .lacks = Mark::opened},
                {.violation = Violation::closed_unreduced, .has = Mark::written}}},
     .clears = {Mark::opened}},
};

/// The rules of a value that is not an action on a group.
inline constexpr GroupRules no_rules = {};

/// Returns the rules of an action on a group.
constexpr const GroupRules& rules_of(Action action) {
  for (const GroupRules& rules : group_rules)
    if (rules.action == action) return rules;
  return no_rules;
}

}  // namespace fsdp::sharding

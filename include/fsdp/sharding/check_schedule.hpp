// SPDX-License-Identifier: Apache-2.0
/// @file
/// The validation of schedules, as a constexpr function.
///
/// This header is long, since it is constexpr: own_strategy.hpp applies it to strategies at compile time. Code that
/// validates schedules only at run time includes check.hpp, which lists the rules.
#pragma once

#include <cstddef>
#include <vector>

#include <tessera/fsdp/sharding/actions.hpp>
#include <tessera/fsdp/sharding/check_result.hpp>
#include <tessera/fsdp/sharding/input_holders.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/sharding/violations.hpp>

namespace fsdp::sharding {

namespace detail {

inline constexpr int never = no_task;

/// The effect of the tasks so far on a group: for each mark, the number of the last task that set it, or `never`.
struct GroupState {
  int last[mark_count];  ///< by mark; a plain array, since each function call takes time in a constant evaluation

  constexpr GroupState() {
    for (int& task : last) task = never;
  }
  constexpr int& operator[](Mark mark) { return last[static_cast<std::size_t>(mark)]; }
  constexpr int operator[](Mark mark) const { return last[static_cast<std::size_t>(mark)]; }
  constexpr bool has(Mark mark) const { return last[static_cast<std::size_t>(mark)] != never; }
};

/// The tasks so far of a micro-batch that moved a unit's offloaded input.
struct InputState {
  int sent = never;
  int fetched = never;
};

/// The progress of a unit that has stages, since its forward began.
struct StagesState {
  std::vector<Stage> list;
  std::vector<int> exchanged;  ///< by stage: number of the task that exchanged it, or `never`
  int computed = never;        ///< the last stage that was computed
};

/// Applies the rules of check.hpp to the tasks of a list, one after the other: the rules of actions on groups are in
/// group_rules, the rules of computations and activation transfers are here. Functions that return bool return whether
/// the rules are satisfied so far; if not, the result is complete.
class ScheduleChecker {
 public:
  constexpr ScheduleChecker(const Schedule& schedule, const Problem& problem)
      : schedule_(schedule),
        problem_(problem),
        computations_(computations(problem)),
        groups_(problem.groups.size()),
        checks_gradient_slots_(has_any(schedule, has_gradient_slot)),
        checks_inputs_(has_any(schedule, copies_input)),
        checks_exchanges_(has_any(schedule, exchanges)),
        units_(checks_exchanges_ ? problem.units.size() : 0),
        inputs_(checks_inputs_ ? problem.units.size() : 0),
        holders_(problem) {}

  constexpr CheckResult run() {
    const int count = static_cast<int>(schedule_.size());
    for (at_ = 0; at_ < count; ++at_) {
      task_ = &task_at(at_);
      if (!check_task()) return result_;
    }
    check_end();
    return result_;
  }

 private:
  using Holders = std::vector<int>;  ///< by slot: number of the task that acquired it, or `never`

  constexpr const Task& task_at(int number) const { return schedule_[static_cast<std::size_t>(number)]; }
  constexpr GroupState& state(int group) { return groups_[static_cast<std::size_t>(group)]; }
  /// Whether an earlier pass left all weights gathered.
  constexpr bool begins_gathered() const { return problem_.pass == Pass::generate_again; }

  /// Complete the result, for the current task or for another one; return false.
  /// @{
  constexpr bool refuse(CheckResult result) { return refuse_at(at_, result); }
  constexpr bool refuse_at(int number, CheckResult result) {
    result.at = number;
    result_ = result;
    return false;
  }
  /// @}

  constexpr bool check_task() {
    if (communicates(task_->action) && waited_ != never)
      return refuse({.violation = Violation::sent_after_wait, .other = waited_});
    const std::size_t count = works_on_unit(task_->action) ? problem_.units.size() : problem_.groups.size();
    if (task_->index < 0 || static_cast<std::size_t>(task_->index) >= count)
      return refuse({.violation = Violation::no_such_index, .number = static_cast<std::int64_t>(count)});
    // At most as many slots are in use at once as there are tasks; a larger number would only waste memory.
    if (task_->slot < -1 || task_->slot >= static_cast<int>(schedule_.size()))
      return refuse({.violation = Violation::no_slot_number, .number = task_->slot});
    const ActionFacts& action = facts_of(task_->action);
    switch (action.kind) {
      case ActionKind::on_group: return check_rules(action, rules_of(task_->action), state(task_->index));
      case ActionKind::computation: return compute();
      case ActionKind::input_copy: return action.takes_slot ? fetch_input() : send_input();
      case ActionKind::exchange: return exchange();
    }
    return true;
  }

  /// Checks an action on a group by its rules.
  constexpr bool check_rules(const ActionFacts& action, const GroupRules& own, GroupState& group) {
    for (const ActionRule& rule : own.rules) {
      if (rule.violation == Violation::none) break;
      if ((rule.has != Mark::none && !group.has(rule.has)) || (rule.lacks != Mark::none && group.has(rule.lacks)) ||
          (rule.in != Case::any && !applies(rule.in)))
        continue;
      if (rule.of_earlier) return refuse_at(group[rule.has], {.violation = rule.violation});
      return refuse({.violation = rule.violation, .other = group[rule.has], .group = task_->index});
    }
    if (action.takes_slot && !take(slots(action.slot))) return false;
    if (action.frees_slot && !give_back(slots(action.slot), group[own.clears[0]])) return false;
    for (const Mark mark : own.clears) group[mark] = never;
    if (own.sets != Mark::none) group[own.sets] = at_;
    if (action.may_wait) waited_ = at_;
    return true;
  }
  /// Whether a rule's case applies to the current task.
  constexpr bool applies(Case in) const {
    const GroupFacts& group = problem_.group(task_->index);
    switch (in) {
      case Case::any: return true;
      case Case::resident: return group.resident;
      case Case::begins_gathered: return begins_gathered();
      case Case::ends_gathered: return begins_gathered() || problem_.pass == Pass::generate;
      case Case::keeps_no_parts: return !group.axes.keeps_parts();
      case Case::sharded_across: return group.across == Across::shard;
      case Case::not_sharded_across: return group.across != Across::shard;
      case Case::crosses_no_axis: return group.across == Across::nothing;
      case Case::makes_no_gradient: return !group.trainable || problem_.pass != Pass::train;
    }
    return true;
  }
  constexpr Holders& slots(SlotKind kind) { return kind == SlotKind::weights ? weight_slots_ : gradient_slots_; }

  constexpr bool crossed(int group) {
    return problem_.group(group).across != Across::shard || state(group).has(Mark::crossed) || begins_gathered() ||
           refuse({.violation = Violation::not_gathered_across, .group = group});
  }

  constexpr bool compute() {
    const auto next = static_cast<std::size_t>(computed_);
    if (next >= computations_.size()) return refuse({.violation = Violation::nothing_to_compute});
    const Task& expected = computations_[next];
    if (task_->action != expected.action || task_->index != expected.index ||
        task_->micro_batch != expected.micro_batch || task_->stage != expected.stage)
      return refuse({.violation = Violation::computed_out_of_order, .expected = expected});
    ++computed_;
    waited_ = never;
    if (checks_exchanges_ && problem_.unit(task_->index).stages.parts > 0 && task_->action != Action::loss &&
        !compute_stage())
      return false;
    for (const int group : each(problem_.unit(task_->index).groups)) {
      if (problem_.uses_weights(*task_) && !use(group)) return false;
      if (problem_.writes_gradients(*task_) && problem_.group(group).trainable && !write(group)) return false;
    }
    return use_input();
  }

  constexpr bool use_input() {
    if (checks_inputs_ && problem_.offloads(task_->index) && problem_.begins(*task_)) {
      InputState& input = inputs_[static_cast<std::size_t>(task_->index)];
      if (task_->action == Action::forward) {
        if (input.sent == never) return refuse({.violation = Violation::never_sent});
      } else {
        if (input.fetched == never) return refuse(unfetched());
        input = {};
      }
    }
    holders_.compute(*task_);
    return true;
  }
  /// Returns the result for a backward whose input is still in host memory.
  constexpr CheckResult unfetched() const {
    for (int later = at_; later < static_cast<int>(schedule_.size()); ++later)
      if (task_at(later) == Task{Action::fetch_input, task_->index, task_->micro_batch, task_at(later).slot})
        return {.violation = Violation::fetched_late, .other = later};
    return {.violation = Violation::never_fetched};
  }

  constexpr bool send_input() {
    InputState& input = inputs_[static_cast<std::size_t>(task_->index)];
    if (!problem_.offloads(task_->index)) return refuse({.violation = Violation::offloads_no_input});
    if (input.sent != never) return refuse({.violation = Violation::sent_twice, .other = input.sent});
    const Task forward{.action = Action::forward, .index = task_->index, .micro_batch = task_->micro_batch};
    const auto next = static_cast<std::size_t>(computed_);
    if (next >= computations_.size() || computations_[next] != forward)
      return refuse({.violation = Violation::sent_out_of_turn});
    const int buffer = holders_.in_forward(task_->index);
    if (task_->slot >= 0 && task_->slot != buffer)
      return refuse({.violation = Violation::in_other_slot, .number = buffer});
    input.sent = at_;
    return true;
  }

  constexpr bool fetch_input() {
    InputState& input = inputs_[static_cast<std::size_t>(task_->index)];
    if (!problem_.offloads(task_->index)) return refuse({.violation = Violation::offloads_no_input});
    // Before the loss, forward still alternates between the buffers.
    const bool before_loss =
        computed_ == 0 || computations_[static_cast<std::size_t>(computed_ - 1)].action == Action::forward;
    if (input.sent == never || before_loss) return refuse({.violation = Violation::fetched_unsent});
    if (input.fetched != never) return refuse({.violation = Violation::fetched_twice, .other = input.fetched});
    if (task_->slot >= input_buffers) return refuse({.violation = Violation::no_such_buffer, .number = input_buffers});
    if (task_->slot >= 0) {
      const int holder = holders_.holder(task_->slot);
      if (holder != InputHolders::no_unit) return refuse({.violation = Violation::buffer_held, .group = holder});
      holders_.take(task_->slot, task_->index);
    }
    input.fetched = at_;
    return true;
  }

  constexpr StagesState& stages() { return units_[static_cast<std::size_t>(task_->index)]; }
  /// Checks that a stage comes after the exchanges that deliver its inputs.
  constexpr bool compute_stage() {
    StagesState& unit = stages();
    if (task_->stage == 0) {
      unit.list = stages_of(problem_.unit(task_->index).stages);
      unit.exchanged.assign(unit.list.size(), never);
    }
    const Stage& stage = unit.list[static_cast<std::size_t>(task_->stage)];
    for (std::size_t number = 0; number < unit.list.size(); ++number)
      if (reads_from(stage, unit.list[number]) && unit.exchanged[number] == never)
        return refuse({.violation = Violation::not_exchanged, .expected = exchange_task(static_cast<int>(number))});
    unit.computed = task_->stage;
    return true;
  }
  constexpr Task exchange_task(int stage) const {
    return {.action = Action::exchange, .index = task_->index, .micro_batch = task_->micro_batch, .stage = stage};
  }
  constexpr bool exchange() {
    StagesState& unit = stages();
    const bool there = unit.computed != never && task_->stage >= 0 &&
                       task_->stage < static_cast<int>(unit.list.size()) &&
                       exchanges(unit.list[static_cast<std::size_t>(task_->stage)].step);
    if (!there) return refuse({.violation = Violation::exchanges_nothing});
    const auto number = static_cast<std::size_t>(task_->stage);
    for (int stage = unit.computed + 1; stage < static_cast<int>(unit.list.size()); ++stage)
      if (sends_by(unit.list[static_cast<std::size_t>(stage)], unit.list[number]))
        return refuse({.violation = Violation::exchanged_early});
    if (unit.exchanged[number] != never)
      return refuse({.violation = Violation::exchanged_twice, .other = unit.exchanged[number]});
    unit.exchanged[number] = at_;
    return true;
  }

  constexpr bool use(int index) {
    GroupState& group = state(index);
    if (problem_.group(index).resident) return crossed(index);
    if (group.has(Mark::released))
      return refuse_at(group[Mark::released], {.violation = Violation::released_before_use, .other = at_});
    if (!group.has(Mark::gathered) && !begins_gathered())
      return refuse({.violation = Violation::used_ungathered, .group = index});
    group[Mark::used] = at_;
    return true;
  }

  constexpr bool write(int index) {
    GroupState& group = state(index);
    if (group.has(Mark::reduced_across))
      return refuse(
          {.violation = Violation::written_after_across, .other = group[Mark::reduced_across], .group = index});
    if (problem_.pieces > 0 && !reduced_once_a_piece(index)) return false;
    if (problem_.group(index).resident && group.has(Mark::reduced))
      return refuse({.violation = Violation::written_after_all_reduce, .other = group[Mark::reduced], .group = index});
    if (checks_gradient_slots_) {
      if (!group.has(Mark::opened)) return refuse({.violation = Violation::written_without_slot, .group = index});
      if (group[Mark::reduced] >= group[Mark::opened])
        return refuse({.violation = Violation::written_while_reduced, .other = group[Mark::reduced], .group = index});
    }
    group[Mark::written] = at_;
    return true;
  }

  /// If a step is split into pieces, a shard's owner adds exactly one contribution per piece; otherwise the sum would
  /// depend on the number of ranks.
  constexpr bool reduced_once_a_piece(int index) {
    const GroupState& group = state(index);
    const auto here = [&](int number) { return number != never && task_at(number).micro_batch == task_->micro_batch; };
    if (group.has(Mark::written) && !here(group[Mark::written]))
      return refuse({.violation = Violation::pieces_mixed, .other = group[Mark::written], .group = index});
    if (here(group[Mark::reduced]))
      return refuse({.violation = Violation::piece_reduced_before, .other = group[Mark::reduced], .group = index});
    return true;
  }

  constexpr bool take(Holders& slots) {
    if (task_->slot < 0) return true;
    const auto slot = static_cast<std::size_t>(task_->slot);
    if (slot >= slots.size()) slots.resize(slot + 1, never);
    if (slots[slot] != never)
      return refuse({.violation = Violation::slot_held,
                     .other = slots[slot],
                     .group = task_at(slots[slot]).index,
                     .number = task_->slot});
    slots[slot] = at_;
    return true;
  }
  /// Frees the slot that task `by` acquired.
  constexpr bool give_back(Holders& slots, int by) {
    const int slot = task_at(by).slot;
    if (slot < 0) return true;
    if (task_->slot >= 0 && task_->slot != slot) return refuse({.violation = Violation::in_other_slot, .number = slot});
    slots[static_cast<std::size_t>(slot)] = never;
    return true;
  }

  constexpr bool check_end() {
    if (static_cast<std::size_t>(computed_) < computations_.size())
      return refuse_at(no_task, {.violation = Violation::ends_early,
                                 .number = static_cast<std::int64_t>(schedule_.size()),
                                 .expected = computations_[static_cast<std::size_t>(computed_)]});
    for (int index = 0; index < static_cast<int>(groups_.size()); ++index)
      if (!check_end_of(index)) return false;
    return true;
  }
  constexpr bool check_end_of(int index) {
    const GroupState& group = state(index);
    // Weights may be in flight until their first use, so they must not be released before it.
    if (group.has(Mark::released) && !group.has(Mark::used))
      return refuse_at(group[Mark::released], {.violation = Violation::not_used});
    if (group.has(Mark::written))
      return refuse_at(group[Mark::written], {.violation = Violation::never_reduced, .group = index});
    if (group.has(Mark::reduced) && problem_.group(index).across != Across::nothing && !group.has(Mark::reduced_across))
      return refuse_at(group[Mark::reduced], {.violation = Violation::never_reduced_across});
    if (group.has(Mark::gathered) && problem_.pass != Pass::generate)
      return refuse_at(group[Mark::gathered], {.violation = Violation::never_released});
    if (group.has(Mark::opened)) return refuse_at(group[Mark::opened], {.violation = Violation::never_closed});
    return true;
  }

  const Schedule& schedule_;
  const Problem& problem_;
  Schedule computations_;
  std::vector<GroupState> groups_;
  bool checks_gradient_slots_, checks_inputs_, checks_exchanges_;
  std::vector<StagesState> units_;  ///< empty unless the list exchanges activations
  std::vector<InputState> inputs_;  ///< empty unless the list copies inputs
  InputHolders holders_;
  int at_ = 0;                  ///< number of the current task
  const Task* task_ = nullptr;  ///< the current task
  int computed_ = 0;            ///< number of computations so far
  int waited_ = never;          ///< number of the last task since the last computation that may wait, or `never`
  Holders weight_slots_, gradient_slots_;
  CheckResult result_;
};

}  // namespace detail

/// Returns the first violation of the rules of check.hpp, or a result without one.
constexpr CheckResult check_schedule(const Schedule& schedule, const Problem& problem) {
  return detail::ScheduleChecker(schedule, problem).run();
}

/// Its former name, for this version.
constexpr CheckResult judge(const Schedule& schedule, const Problem& problem) {
  return check_schedule(schedule, problem);
}

}  // namespace fsdp::sharding

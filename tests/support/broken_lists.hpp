// SPDX-License-Identifier: Apache-2.0
/// @file
/// For each rule of schedules, a strategy whose schedules break it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <type_traits>

#include <tessera/fsdp/sharding/check_result.hpp>
#include <tessera/fsdp/sharding/scheduler.hpp>
#include <tessera/fsdp/sharding/slot_assigner.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp::sharding::test {

/// A valid task list and functions to corrupt it. `n` selects the n-th task of an action: 0 is the first, -1 the last.
struct Spoiling {
  Schedule list;

  constexpr bool has(Action action, int n = 0) const { return at(action, n) < size(); }
  constexpr Task& task(Action action, int n = 0) { return list[static_cast<std::size_t>(at(action, n))]; }
  constexpr void erase(Action action, int n = 0) {
    if (has(action, n)) list.erase(list.begin() + at(action, n));
  }
  constexpr void repeat(Action action) {
    if (has(action)) insert(at(action), task(action));
  }
  constexpr void end_before_last(Action action) { list.erase(list.begin() + at(action, -1), list.end()); }
  constexpr void begin_with(Action action, int index) { insert(0, {.action = action, .index = index}); }
  constexpr void insert_after(Action action, const Task& added, int n = 0) {
    if (has(action, n)) insert(at(action, n) + 1, added);
  }

 private:
  constexpr std::ptrdiff_t size() const { return std::ssize(list); }
  constexpr std::ptrdiff_t at(Action action, int n = 0) const {
    std::ptrdiff_t found = size();
    for (std::ptrdiff_t i = 0; i < size(); ++i) {
      if (list[static_cast<std::size_t>(i)].action != action) continue;
      found = i;
      if (n-- == 0) return i;
    }
    return n < -1 ? found : size();
  }
  constexpr void insert(std::ptrdiff_t before, Task added) { list.insert(list.begin() + before, added); }
};

/// The rules of a strategy whose valid list is then corrupted.
constexpr Rules rules_of(Violation violation) {
  Rules rules;
  switch (violation) {
    case Violation::not_gathered_across:
    case Violation::gathers_across_again:
    case Violation::gathered_across_twice: rules.facts.across = Across::shard; break;
    case Violation::written_after_across:
    case Violation::not_reduced_inside:
    case Violation::reduced_across_twice:
    case Violation::never_reduced_across: rules.facts.across = Across::all_reduce; break;
    case Violation::none_kept: rules.facts.group_after_forward = true; break;
    case Violation::pieces_mixed:
    case Violation::piece_reduced_before: rules.facts.pieces = 4; break;
    case Violation::gathers_resident:
    case Violation::written_after_all_reduce:
      rules.hold = Hold::always;
      rules.reduce_every_micro_batch = false;
      break;
    default: break;
  }
  return rules;
}

/// Whether the violation concerns slots, so that the list needs them.
constexpr bool needs_slots(Violation violation) {
  switch (violation) {
    case Violation::sent_after_wait:
    case Violation::slot_held:
    case Violation::written_without_slot:
    case Violation::written_while_reduced:
    case Violation::opened_twice:
    case Violation::closed_unreduced:
    case Violation::in_other_slot:
    case Violation::sent_out_of_turn:
    case Violation::sent_twice:
    case Violation::never_sent:
    case Violation::fetched_unsent:
    case Violation::fetched_twice:
    case Violation::fetched_late:
    case Violation::never_fetched:
    case Violation::no_such_buffer:
    case Violation::buffer_held:
    case Violation::never_closed: return true;
    default: return false;
  }
}

/// Returns a list that breaks the rule, or a valid list if the pass and model cannot break it.
constexpr Schedule spoiled(Violation violation, const Problem& problem) {
  Spoiling spoiling{make_schedule(rules_of(violation), problem)};
  if (needs_slots(violation)) spoiling.list = with_slots(spoiling.list, problem);
  const int head = problem.units.back().groups.front();
  const int shared = problem.units.back().groups.back();  // the group of tied weights, otherwise that of the head
  const bool tied = shared != head;
  switch (violation) {
    case Violation::none: break;
    case Violation::sent_after_wait:
      spoiling.insert_after(Action::close_gradient, {.action = Action::gather, .index = 0});
      break;
    case Violation::no_such_index: spoiling.list.front().index = 77; break;
    case Violation::no_slot_number: spoiling.list.front().slot = 1'000'000; break;
    case Violation::gathers_resident: spoiling.begin_with(Action::gather, 0); break;
    case Violation::gathers_again:
      if (problem.pass == Pass::generate_again) spoiling.begin_with(Action::gather, 0);
      break;
    case Violation::gathered_twice: spoiling.repeat(Action::gather); break;
    case Violation::not_used:
      spoiling.begin_with(Action::release, 1);
      spoiling.begin_with(Action::gather, 1);
      break;
    case Violation::not_gathered_across: spoiling.erase(Action::gather_across); break;
    case Violation::slot_held:
      if (spoiling.has(Action::gather, 1)) spoiling.task(Action::gather, 1).slot = 0;
      break;
    case Violation::none_kept: spoiling.erase(Action::keep); break;
    case Violation::keeps_no_parts: spoiling.insert_after(Action::forward, {.action = Action::keep, .index = 0}); break;
    case Violation::not_gathered: spoiling.begin_with(Action::release, 0); break;
    case Violation::not_sharded_across: spoiling.begin_with(Action::gather_across, 0); break;
    case Violation::gathers_across_again:
      if (problem.pass == Pass::generate_again) spoiling.begin_with(Action::gather_across, 0);
      break;
    case Violation::gathered_across_twice: spoiling.repeat(Action::gather_across); break;
    case Violation::releases_kept:
      if (problem.pass == Pass::generate) spoiling.list.push_back({.action = Action::release, .index = 0});
      break;
    case Violation::nothing_to_compute: spoiling.list.push_back({.action = Action::loss, .index = head}); break;
    case Violation::computed_out_of_order: spoiling.task(Action::forward).index = 1; break;
    case Violation::released_before_use: {
      const auto first = std::find_if(spoiling.list.begin(), spoiling.list.end(),
                                      [](const Task& task) { return task.action == Action::forward; });
      spoiling.list.insert(first, {.action = Action::release, .index = 0});
      break;
    }
    case Violation::used_ungathered: spoiling.erase(Action::gather); break;
    case Violation::written_after_across:
      if (problem.micro_batches > 1)
        spoiling.insert_after(Action::reduce, {.action = Action::reduce_across, .index = head});
      break;
    case Violation::pieces_mixed:
      if (problem.micro_batches > 1) spoiling.erase(Action::reduce);
      break;
    case Violation::piece_reduced_before:
    case Violation::written_after_all_reduce:
    case Violation::written_while_reduced:
      if (tied) spoiling.insert_after(Action::loss, {.action = Action::reduce, .index = shared});
      break;
    case Violation::written_without_slot: spoiling.erase(Action::open_gradient); break;
    case Violation::opens_no_gradient:
      if (problem.pass == Pass::evaluate) spoiling.begin_with(Action::open_gradient, 0);
      break;
    case Violation::opened_twice: spoiling.repeat(Action::open_gradient); break;
    case Violation::reduced_twice: spoiling.repeat(Action::reduce); break;
    case Violation::reduces_nothing: spoiling.begin_with(Action::reduce, 0); break;
    case Violation::crosses_no_axis:
      spoiling.insert_after(Action::reduce, {.action = Action::reduce_across, .index = head});
      break;
    case Violation::not_reduced_inside: spoiling.begin_with(Action::reduce_across, 0); break;
    case Violation::reduced_across_twice: spoiling.repeat(Action::reduce_across); break;
    case Violation::not_open: spoiling.begin_with(Action::close_gradient, 0); break;
    case Violation::closed_unreduced:
      spoiling.insert_after(Action::loss, {.action = Action::close_gradient, .index = head});
      break;
    case Violation::in_other_slot: ++spoiling.task(Action::release).slot; break;
    case Violation::offloads_no_input: spoiling.begin_with(Action::send_input, 0); break;
    case Violation::sent_out_of_turn:
      if (spoiling.has(Action::send_input)) spoiling.begin_with(Action::send_input, 1);
      break;
    case Violation::sent_twice: spoiling.repeat(Action::send_input); break;
    case Violation::never_sent: spoiling.erase(Action::send_input); break;
    case Violation::fetched_unsent:
      if (spoiling.has(Action::fetch_input)) spoiling.begin_with(Action::fetch_input, 1);
      break;
    case Violation::fetched_twice: spoiling.repeat(Action::fetch_input); break;
    case Violation::fetched_late:
      if (spoiling.has(Action::fetch_input)) {
        const Task fetch = spoiling.task(Action::fetch_input);
        spoiling.erase(Action::fetch_input);
        spoiling.insert_after(Action::backward, fetch, 1);
      }
      break;
    case Violation::never_fetched: spoiling.erase(Action::fetch_input); break;
    case Violation::no_such_buffer:
      if (spoiling.has(Action::fetch_input)) spoiling.task(Action::fetch_input).slot = input_buffers;
      break;
    case Violation::buffer_held:
      if (spoiling.has(Action::fetch_input)) spoiling.task(Action::fetch_input).slot = 0;
      break;
    case Violation::ends_early: spoiling.end_before_last(Action::backward); break;
    case Violation::never_reduced: spoiling.erase(Action::reduce, -1); break;
    case Violation::never_reduced_across: spoiling.erase(Action::reduce_across, -1); break;
    case Violation::never_released: spoiling.erase(Action::release, -1); break;
    case Violation::never_closed: spoiling.erase(Action::close_gradient, -1); break;
    case Violation::not_exchanged:  // only for units with stages: tests/sharding/stages_test.cpp
    case Violation::exchanges_nothing:
    case Violation::exchanged_early:
    case Violation::exchanged_twice: break;
  }
  return spoiling.list;
}

/// A strategy whose schedules break one rule.
template <Violation violation>
struct Breaks {
  using AtRest = std::conditional_t<rules_of(violation).hold == Hold::always, buffer::Replicate, buffer::Shard>;
  using Layout = buffer::Flat;

  constexpr Facts facts() const { return rules_of(violation).facts; }
  constexpr Schedule schedule(const Problem& problem) const { return spoiled(violation, problem); }
};

}  // namespace fsdp::sharding::test

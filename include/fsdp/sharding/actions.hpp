// SPDX-License-Identifier: Apache-2.0
/// @file
/// The actions of schedules, in one table: what each is, which rules it must keep, and what it does to slots, queues
/// and memory. The checks (judge.hpp), slots (slot_assigner.hpp) and the order of events (event_order.hpp) read it.
///
/// To add an action on a group: its enumerator and row here, the task where lists are made (scheduler.hpp, or a
/// strategy of one's own), and what it does in tessera/fsdp/module/group_tasks.hpp. Not here: computations and moves of
/// activations have an order of their own, which judge.hpp knows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include <tessera/fsdp/sharding/breaches.hpp>

namespace fsdp::sharding {

/// What a task does. Computations and moves of activations work on a unit, all other actions on a group of weights.
enum class Action : std::uint8_t {
  gather,           ///< start the all-gather of a group's weights
  gather_in_group,  ///< the same, from the parts that `keep` left on k ranks
  gather_across,    ///< start the all-gather of the shards at rest over the mesh's outer axis
  forward,          ///< forward of a unit; waits for its gathers
  loss,             ///< forward and backward of a unit in one go
  backward,         ///< backward of a unit
  keep,             ///< copy this rank's part (one of k) of a group's gathered weights
  release,          ///< give up a group's gathered weights
  open_gradient,    ///< give a group's gradient its slot, before the first write
  reduce,           ///< start the reduction of a group's gradients
  reduce_across,    ///< start the reduction of the summed shards over the mesh's outer axis
  close_gradient,   ///< give up the gradient slot; waits for the reduction that reads it
  send_input,       ///< start the copy of a unit's input to host memory; its forward may run beside it
  fetch_input,      ///< start the copy back, for the unit's backward
  exchange,         ///< start an exchange of a unit's activations between two of its stages
};

/// The queues of a rank whose device and communicators have one each.
struct Queues {
  /// The device's, those of the communicators that GroupAxes names, that of the ranks that share a sequence, and that
  /// of copies to host memory and back. `queues` is their number, or stands for none of them.
  enum Kind : std::size_t { compute, shard, across, keep, sequence, host, queues };
};

/// On what an action works, and how: a unit is computed, its input copied, or its activations exchanged.
enum class ActionKind : std::uint8_t { on_group, computation, input_copy, exchange };

/// What a slot holds.
enum class SlotKind : std::uint8_t { none, weights, gradient, input };

/// What was done to a group. The checks keep, for each, the last task that did it.
enum class Mark : std::uint8_t {
  none,            ///< no mark
  gathered,        ///< and not released since
  released,        ///< and not gathered since
  used,            ///< since it was gathered
  kept,            ///< ranks keep parts of its weights
  crossed,         ///< its shards were gathered across
  opened,          ///< and not closed since
  written,         ///< and not reduced since
  reduced,         ///< its gradient
  reduced_across,  ///< the sum of its gradient
};
inline constexpr std::size_t mark_count = static_cast<std::size_t>(Mark::reduced_across) + 1;  ///< values of Mark

/// A property of a group, or of the pass, on which a rule depends.
enum class Case : std::uint8_t {
  any,                 ///< always
  resident,            ///< the group is whole on every rank at rest
  begins_gathered,     ///< the pass finds all weights gathered
  ends_gathered,       ///< the pass leaves all weights gathered
  keeps_no_parts,      ///< no ranks keep weights together
  sharded_across,      ///< the optimizer's part of the group is sharded over the outer axis
  not_sharded_across,  ///< it is not
  crosses_no_axis,     ///< the group's gradient is not reduced over an outer axis
  makes_no_gradient,   ///< the pass makes no gradient of the group
};

/// A task is refused if its group has and lacks these marks, in this case.
struct ActionRule {
  Breach breach = Breach::none;  ///< what is said; none: there is no rule
  Case in = Case::any;           ///< the case
  Mark has = Mark::none;         ///< the task that left it is Verdict::other
  Mark lacks = Mark::none;       ///< Mark::none: lacks nothing
  bool of_earlier = false;       ///< the task that left `has` is refused in place of the current one
};

/// What a task may use at the same time as tasks of other queues. `slot` stays the last.
enum class Memory : std::uint8_t { none, shards, kept_part, sum, in_host, slot };

/// What a queue may wait for: what was done to a group or an input, or all that is on the device's queue by now
/// (`computed`, which stays the last).
enum class Happened : std::uint8_t { nothing, crossed, gathered, kept, reduced, sent, fetched, computed };

/// What is known of an action.
struct ActionFacts {
  Action action = Action::gather;          ///< of which this is the row
  std::string_view name = {};              ///< as `--print-schedule` writes it
  ActionKind kind = ActionKind::on_group;  ///< on what it works
  bool forward = false;                    ///< a computation of a unit's forward
  bool backward = false;                   ///< and of its backward
  bool communicates = false;               ///< starts a collective
  bool may_wait = false;                   ///< the host may wait for a collective

  SlotKind slot = SlotKind::none;        ///< which slot it uses
  bool takes_slot = false;               ///< it is the first to use it
  bool frees_slot = false;               ///< it is the last to use it
  std::array<ActionRule, 6> rules = {};  ///< of a group, in the order in which they are checked
  Mark sets = Mark::none;                ///< what it does to the group
  std::array<Mark, 2> clears = {};       ///< the first of an action that frees a slot: what taking it has set

  Queues::Kind queue = Queues::queues;       ///< where it runs; queues: nowhere, the host notes it
  Happened after = Happened::nothing;        ///< what its queue waits for, besides the slot that it takes
  Memory reads = Memory::none;               ///< on its queue
  Memory writes = Memory::none;              ///< on its queue
  Happened records = Happened::nothing;      ///< what has happened once it has run
  Happened frees_after = Happened::nothing;  ///< when the slot that it frees may be used again
};

/// By action.
inline constexpr ActionFacts action_table[] = {
    {.action = Action::gather,
     .name = "gather",
     .communicates = true,
     .slot = SlotKind::weights,
     .takes_slot = true,
     .rules = {{{.breach = Breach::gathers_resident, .in = Case::resident},
                {.breach = Breach::gathers_again, .in = Case::begins_gathered},
                {.breach = Breach::gathered_twice, .has = Mark::gathered},
                // Asked late: a use that follows a release has a better sentence.
                {.breach = Breach::not_used, .has = Mark::released, .lacks = Mark::used, .of_earlier = true},
                {.breach = Breach::not_gathered_across, .in = Case::sharded_across, .lacks = Mark::crossed}}},
     .sets = Mark::gathered,
     .clears = {Mark::released, Mark::used},
     .queue = Queues::shard,
     .after = Happened::crossed,
     .reads = Memory::shards,
     .writes = Memory::slot,
     .records = Happened::gathered},
    {.action = Action::gather_in_group,
     .name = "gather-in-group",
     .communicates = true,
     .slot = SlotKind::weights,
     .takes_slot = true,
     .rules = {{{.breach = Breach::none_kept, .lacks = Mark::kept},
                {.breach = Breach::gathers_resident, .in = Case::resident},
                {.breach = Breach::gathers_again, .in = Case::begins_gathered},
                {.breach = Breach::gathered_twice, .has = Mark::gathered},
                {.breach = Breach::not_used, .has = Mark::released, .lacks = Mark::used, .of_earlier = true},
                {.breach = Breach::not_gathered_across, .in = Case::sharded_across, .lacks = Mark::crossed}}},
     .sets = Mark::gathered,
     .clears = {Mark::released, Mark::used},
     .queue = Queues::keep,
     .after = Happened::kept,
     .reads = Memory::kept_part,
     .writes = Memory::slot,
     .records = Happened::gathered},
    {.action = Action::gather_across,
     .name = "gather-across",
     .communicates = true,
     .rules = {{{.breach = Breach::not_sharded_across, .in = Case::not_sharded_across},
                {.breach = Breach::gathers_across_again, .in = Case::begins_gathered},
                {.breach = Breach::gathered_across_twice, .has = Mark::crossed}}},
     .sets = Mark::crossed,
     .queue = Queues::across,
     .writes = Memory::shards,
     .records = Happened::crossed},
    {.action = Action::forward, .name = "forward", .kind = ActionKind::computation, .forward = true},
    {.action = Action::loss, .name = "loss", .kind = ActionKind::computation, .forward = true, .backward = true},
    {.action = Action::backward, .name = "backward", .kind = ActionKind::computation, .backward = true},
    {.action = Action::keep,
     .name = "keep",
     .slot = SlotKind::weights,
     .rules = {{{.breach = Breach::keeps_no_parts, .in = Case::keeps_no_parts},
                {.breach = Breach::not_gathered, .lacks = Mark::gathered},
                // The first use waits for the gather. Before that, the weights are still in flight.
                {.breach = Breach::not_used, .lacks = Mark::used}}},
     .sets = Mark::kept,
     .queue = Queues::compute,
     .reads = Memory::slot,
     .writes = Memory::kept_part,
     .records = Happened::kept},
    {.action = Action::release,
     .name = "release",
     .slot = SlotKind::weights,
     .frees_slot = true,
     .rules = {{{.breach = Breach::releases_kept, .in = Case::ends_gathered},
                {.breach = Breach::not_gathered, .lacks = Mark::gathered}}},
     .sets = Mark::released,
     .clears = {Mark::gathered},
     .frees_after = Happened::computed},
    {.action = Action::open_gradient,
     .name = "open-gradient",
     .slot = SlotKind::gradient,
     .takes_slot = true,
     .rules = {{{.breach = Breach::opens_no_gradient, .in = Case::makes_no_gradient},
                {.breach = Breach::opened_twice, .has = Mark::opened}}},
     .sets = Mark::opened},
    {.action = Action::reduce,
     .name = "reduce",
     .communicates = true,
     .slot = SlotKind::gradient,
     .rules = {{{.breach = Breach::reduced_twice, .has = Mark::reduced, .lacks = Mark::written},
                {.breach = Breach::reduces_nothing, .lacks = Mark::written}}},
     .sets = Mark::reduced,
     .clears = {Mark::written},
     .queue = Queues::shard,
     .after = Happened::computed,
     .reads = Memory::slot,
     .writes = Memory::sum,
     .records = Happened::reduced},
    {.action = Action::reduce_across,
     .name = "reduce-across",
     .communicates = true,
     .rules = {{{.breach = Breach::crosses_no_axis, .in = Case::crosses_no_axis},
                {.breach = Breach::not_reduced_inside, .has = Mark::written},
                {.breach = Breach::not_reduced_inside, .lacks = Mark::reduced},
                {.breach = Breach::reduced_across_twice, .has = Mark::reduced_across}}},
     .sets = Mark::reduced_across,
     .queue = Queues::across,
     .after = Happened::reduced,
     .writes = Memory::sum,
     .records = Happened::reduced},
    {.action = Action::close_gradient,
     .name = "close-gradient",
     .may_wait = true,
     .slot = SlotKind::gradient,
     .frees_slot = true,
     .rules = {{{.breach = Breach::not_open, .lacks = Mark::opened},
                {.breach = Breach::closed_unreduced, .has = Mark::written}}},
     .clears = {Mark::opened},
     .frees_after = Happened::reduced},
    {.action = Action::send_input,
     .name = "send-input",
     .kind = ActionKind::input_copy,
     .slot = SlotKind::input,
     .frees_slot = true,
     .queue = Queues::host,
     .after = Happened::computed,
     .reads = Memory::slot,
     .writes = Memory::in_host,
     .records = Happened::sent,
     .frees_after = Happened::sent},
    {.action = Action::fetch_input,
     .name = "fetch-input",
     .kind = ActionKind::input_copy,
     .slot = SlotKind::input,
     .takes_slot = true,
     .queue = Queues::host,
     .after = Happened::computed,
     .reads = Memory::in_host,
     .writes = Memory::slot,
     .records = Happened::fetched},
    {.action = Action::exchange,
     .name = "exchange",
     .kind = ActionKind::exchange,
     .communicates = true,
     .queue = Queues::sequence,
     .after = Happened::computed},
};

/// The row of a value that is no action.
inline constexpr ActionFacts no_action = {.name = "?"};

/// Returns an action's row.
constexpr const ActionFacts& facts_of(Action action) {
  const auto index = static_cast<std::size_t>(action);
  return index < std::size(action_table) ? action_table[index] : no_action;
}
static_assert(std::size(action_table) == static_cast<std::size_t>(Action::exchange) + 1,
              "action_table lacks a row, or another action than exchange is the last");
static_assert(
    [] {
      for (std::size_t i = 0; i < std::size(action_table); ++i)
        if (static_cast<std::size_t>(action_table[i].action) != i) return false;
      return true;
    }(),
    "a row of action_table is at another place than its action");

/// Returns the action's name, as `--print-schedule` writes it.
constexpr std::string_view name_of(Action action) { return facts_of(action).name; }
/// Whether an action is a computation.
constexpr bool computes(Action action) { return facts_of(action).kind == ActionKind::computation; }
/// Whether it computes a unit's forward, or its backward; a loss does both.
/// @{
constexpr bool computes_forward(Action action) { return facts_of(action).forward; }
constexpr bool computes_backward(Action action) { return facts_of(action).backward; }
/// @}
/// Whether it copies a unit's input to host memory or back.
constexpr bool copies_input(Action action) { return facts_of(action).kind == ActionKind::input_copy; }
/// Whether it exchanges a unit's activations.
constexpr bool exchanges(Action action) { return facts_of(action).kind == ActionKind::exchange; }
/// Whether it moves a unit's activations. The caller of a pass does that, since the library does not own them.
constexpr bool moves_activations(Action action) { return copies_input(action) || exchanges(action); }
/// Whether an action's index is that of a unit and not of a group.
constexpr bool works_on_unit(Action action) { return facts_of(action).kind != ActionKind::on_group; }
/// Whether it starts a collective.
constexpr bool communicates(Action action) { return facts_of(action).communicates; }
/// Whether it may make the host wait for a collective.
constexpr bool may_wait(Action action) { return facts_of(action).may_wait; }
/// Whether it takes or gives up a slot of a kind.
constexpr bool has_slot(Action action, SlotKind kind) {
  const ActionFacts& facts = facts_of(action);
  return facts.slot == kind && (facts.takes_slot || facts.frees_slot);
}
/// Whether it takes or gives up a slot for gathered weights, or for gradients.
/// @{
constexpr bool has_weight_slot(Action action) { return has_slot(action, SlotKind::weights); }
constexpr bool has_gradient_slot(Action action) { return has_slot(action, SlotKind::gradient); }
/// @}

}  // namespace fsdp::sharding

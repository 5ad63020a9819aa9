// SPDX-License-Identifier: Apache-2.0
/// @file
/// The table of schedule actions: the kind of each action, the rules that it must follow, and its effect on slots,
/// queues and memory. The checks (judge.hpp), the slot assignment (slot_assigner.hpp) and the event order
/// (event_order.hpp) read it.
///
/// To add an action on a group, add its enumerator and row here, emit the task where schedules are built (scheduler.hpp
/// or a user-defined strategy), and implement it in tessera/fsdp/module/group_tasks.hpp. The ordering rules of
/// computations and of activation transfers are not in this table but in judge.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include <tessera/fsdp/sharding/breaches.hpp>

namespace fsdp::sharding {

/// The action of a task. Computations and activation transfers work on a unit, all other actions on a group of weights.
enum class Action : std::uint8_t {
  gather,           ///< start the all-gather of a group's weights
  gather_in_group,  ///< start the all-gather of a group's weights from the parts that `keep` stored on k ranks
  gather_across,    ///< start the all-gather, over the mesh's outer axis, of the shards at rest
  forward,          ///< forward of a unit; waits for its gathers
  loss,             ///< forward and backward of a unit as one computation
  backward,         ///< backward of a unit
  keep,             ///< copy this rank's part (one of k) of a group's gathered weights
  release,          ///< release a group's gathered weights
  open_gradient,    ///< assign a slot to a group's gradient, before the first write
  reduce,           ///< start the reduction of a group's gradients
  reduce_across,    ///< start the reduction of the summed shards over the mesh's outer axis
  close_gradient,   ///< release the gradient slot; waits for the reduction that reads it
  send_input,       ///< start the copy of a unit's input to host memory; it may overlap the unit's forward
  fetch_input,      ///< start the copy of a unit's input back to the device, for its backward
  exchange,         ///< start an exchange of a unit's activations between two of its stages
};

/// The queues of a rank: one for the device and one for each communicator.
struct Queues {
  /// The device's compute queue, one queue for each communicator of GroupAxes, one for the ranks that share a sequence,
  /// and one for copies to and from host memory. `queues` is the number of queues, and also the sentinel for "no
  /// queue".
  enum Kind : std::size_t { compute, shard, across, keep, sequence, host, queues };
};

/// The subject of an action and the operation: an action on a group, the computation of a unit, the copy of a unit's
/// input, or an exchange of a unit's activations.
enum class ActionKind : std::uint8_t { on_group, computation, input_copy, exchange };

/// The content of a slot.
enum class SlotKind : std::uint8_t { none, weights, gradient, input };

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
  Breach breach = Breach::none;  ///< the violation to report; none: this entry is unused
  Case in = Case::any;           ///< the case in which the rule applies
  /// Mark that the group has; the task that set it becomes Verdict::other. Mark::none: no condition.
  Mark has = Mark::none;
  Mark lacks = Mark::none;  ///< mark that the group does not have; Mark::none: no condition
  bool of_earlier = false;  ///< refuse the task that set `has` instead of the current task
};

/// Memory that a task may access concurrently with tasks of other queues. `slot` must be the last enumerator.
enum class Memory : std::uint8_t { none, shards, kept_part, sum, in_host, slot };

/// An event that a queue may wait for: one of a group or of an input, or the completion of all tasks enqueued so far on
/// the device's queue (`computed`, which must be the last enumerator).
enum class Happened : std::uint8_t { nothing, crossed, gathered, kept, reduced, sent, fetched, computed };

/// The properties of an action.
struct ActionFacts {
  Action action = Action::gather;          ///< the action that this row describes
  std::string_view name = {};              ///< name that `--print-schedule` prints
  ActionKind kind = ActionKind::on_group;  ///< subject and operation of the action
  bool forward = false;                    ///< computes a unit's forward
  bool backward = false;                   ///< computes a unit's backward
  bool communicates = false;               ///< starts a collective
  bool may_wait = false;                   ///< the host may wait for a collective

  SlotKind slot = SlotKind::none;        ///< kind of slot that it uses
  bool takes_slot = false;               ///< first use of the slot: acquires it
  bool frees_slot = false;               ///< last use of the slot: frees it
  std::array<ActionRule, 6> rules = {};  ///< rules for actions on a group, in the order in which they are checked
  Mark sets = Mark::none;                ///< mark that it sets on the group
  /// Marks that it clears; if the action frees a slot, the first is the mark that was set when the slot was acquired.
  std::array<Mark, 2> clears = {};

  /// Queue on which it runs; queues: none, only the host's bookkeeping changes.
  Queues::Kind queue = Queues::queues;
  /// Event that its queue waits for, in addition to the slot that it acquires.
  Happened after = Happened::nothing;
  Memory reads = Memory::none;               ///< memory that it accesses on its queue
  Memory writes = Memory::none;              ///< memory that it accesses on its queue
  Happened records = Happened::nothing;      ///< event that it records on completion
  Happened frees_after = Happened::nothing;  ///< event after which the slot that it frees may be reused
};

/// The properties of all actions, indexed by Action.
inline constexpr ActionFacts action_table[] = {
    {.action = Action::gather,
     .name = "gather",
     .communicates = true,
     .slot = SlotKind::weights,
     .takes_slot = true,
     .rules = {{{.breach = Breach::gathers_resident, .in = Case::resident},
                {.breach = Breach::gathers_again, .in = Case::begins_gathered},
                {.breach = Breach::gathered_twice, .has = Mark::gathered},
                // Checked after the others: for a use after a release, another rule reports a more precise error.
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

/// The row for a value that is not an action.
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

/// Returns the action's name, as `--print-schedule` prints it.
constexpr std::string_view name_of(Action action) { return facts_of(action).name; }
/// Whether an action is a computation.
constexpr bool computes(Action action) { return facts_of(action).kind == ActionKind::computation; }
/// Whether an action computes a unit's forward, or its backward; a loss computes both.
/// @{
constexpr bool computes_forward(Action action) { return facts_of(action).forward; }
constexpr bool computes_backward(Action action) { return facts_of(action).backward; }
/// @}
/// Whether an action copies a unit's input to host memory or back.
constexpr bool copies_input(Action action) { return facts_of(action).kind == ActionKind::input_copy; }
/// Whether an action exchanges a unit's activations.
constexpr bool exchanges(Action action) { return facts_of(action).kind == ActionKind::exchange; }
/// Whether an action moves a unit's activations. The caller of a pass does this, since the library does not own them.
constexpr bool moves_activations(Action action) { return copies_input(action) || exchanges(action); }
/// Whether an action's index refers to a unit and not to a group.
constexpr bool works_on_unit(Action action) { return facts_of(action).kind != ActionKind::on_group; }
/// Whether an action starts a collective.
constexpr bool communicates(Action action) { return facts_of(action).communicates; }
/// Whether an action may make the host wait for a collective.
constexpr bool may_wait(Action action) { return facts_of(action).may_wait; }
/// Whether an action acquires or frees a slot of the given kind.
constexpr bool has_slot(Action action, SlotKind kind) {
  const ActionFacts& facts = facts_of(action);
  return facts.slot == kind && (facts.takes_slot || facts.frees_slot);
}
/// Whether an action acquires or frees a slot for gathered weights, or for gradients.
/// @{
constexpr bool has_weight_slot(Action action) { return has_slot(action, SlotKind::weights); }
constexpr bool has_gradient_slot(Action action) { return has_slot(action, SlotKind::gradient); }
/// @}

}  // namespace fsdp::sharding

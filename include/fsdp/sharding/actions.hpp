// SPDX-License-Identifier: Apache-2.0
/// @file
/// The table of schedule actions: the kind of each action, and its effect on slots, queues and memory. The checks
/// (check_schedule.hpp), the slot assignment (slot_assigner.hpp) and the event order (event_order.hpp) read it.
///
/// To add an action on a group, add its enumerator and row here and its rules in violations.hpp, emit the task where
/// schedules are built (scheduler.hpp or a user-defined strategy), and implement it in
/// tessera/fsdp/module/group_tasks.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

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

  SlotKind slot = SlotKind::none;  ///< kind of slot that it uses
  bool takes_slot = false;         ///< first use of the slot: acquires it
  bool frees_slot = false;         ///< last use of the slot: frees it

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
     .queue = Queues::keep,
     .after = Happened::kept,
     .reads = Memory::kept_part,
     .writes = Memory::slot,
     .records = Happened::gathered},
    {.action = Action::gather_across,
     .name = "gather-across",
     .communicates = true,
     .queue = Queues::across,
     .writes = Memory::shards,
     .records = Happened::crossed},
    {.action = Action::forward, .name = "forward", .kind = ActionKind::computation, .forward = true},
    {.action = Action::loss, .name = "loss", .kind = ActionKind::computation, .forward = true, .backward = true},
    {.action = Action::backward, .name = "backward", .kind = ActionKind::computation, .backward = true},
    {.action = Action::keep,
     .name = "keep",
     .slot = SlotKind::weights,
     .queue = Queues::compute,
     .reads = Memory::slot,
     .writes = Memory::kept_part,
     .records = Happened::kept},
    {.action = Action::release,
     .name = "release",
     .slot = SlotKind::weights,
     .frees_slot = true,
     .frees_after = Happened::computed},
    {.action = Action::open_gradient, .name = "open-gradient", .slot = SlotKind::gradient, .takes_slot = true},
    {.action = Action::reduce,
     .name = "reduce",
     .communicates = true,
     .slot = SlotKind::gradient,
     .queue = Queues::shard,
     .after = Happened::computed,
     .reads = Memory::slot,
     .writes = Memory::sum,
     .records = Happened::reduced},
    {.action = Action::reduce_across,
     .name = "reduce-across",
     .communicates = true,
     .queue = Queues::across,
     .after = Happened::reduced,
     .writes = Memory::sum,
     .records = Happened::reduced},
    {.action = Action::close_gradient,
     .name = "close-gradient",
     .may_wait = true,
     .slot = SlotKind::gradient,
     .frees_slot = true,
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

inline constexpr std::size_t action_count = std::size(action_table);  ///< number of actions

/// The row for a value that is not an action.
inline constexpr ActionFacts no_action = {.name = "?"};

/// Returns an action's row.
constexpr const ActionFacts& facts_of(Action action) {
  const auto index = static_cast<std::size_t>(action);
  return index < action_count ? action_table[index] : no_action;
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

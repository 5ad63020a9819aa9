// SPDX-License-Identifier: Apache-2.0
/// @file
/// The schedule of a pass as a value: gathers, computations, releases and reductions, in order.
///
/// `make_schedule` (scheduler.hpp) derives the list from a strategy's rules, or the strategy provides one. `check`
/// validates it (check.hpp), `assign_slots` assigns the slots (slots.hpp), and the executor runs exactly this list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/sharding/stages.hpp>

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

/// Whether an action is a computation.
constexpr bool computes(Action action) {
  return action == Action::forward || action == Action::loss || action == Action::backward;
}
/// Whether it copies a unit's input to host memory or back.
constexpr bool copies_input(Action action) { return action == Action::send_input || action == Action::fetch_input; }
/// Whether it moves a unit's activations. The caller of a pass does that, since the library does not own them.
constexpr bool moves_activations(Action action) { return copies_input(action) || action == Action::exchange; }
/// Whether an action's index is that of a unit and not of a group.
constexpr bool works_on_unit(Action action) { return computes(action) || moves_activations(action); }
/// Whether it starts a collective.
constexpr bool communicates(Action action) {
  return action == Action::gather || action == Action::gather_in_group || action == Action::gather_across ||
         action == Action::reduce || action == Action::reduce_across || action == Action::exchange;
}
/// Whether it takes or gives up a slot for gathered weights.
constexpr bool has_weight_slot(Action action) {
  return action == Action::gather || action == Action::gather_in_group || action == Action::release;
}
/// Whether it takes or gives up a slot for gradients.
constexpr bool has_gradient_slot(Action action) {
  return action == Action::open_gradient || action == Action::close_gradient;
}

/// One entry of a schedule. `index` is a unit where the action works on one, else a group of weights.
struct Task {
  Action action = Action::forward;  ///< what is done
  int index = 0;                    ///< to which unit or group, from 0
  int micro_batch = 0;              ///< in which micro-batch, from 0
  /// Of gather, gather_in_group, release, open_gradient and close_gradient; of send_input and fetch_input the buffer
  /// on the device. -1: none, or not yet placed.
  int slot = -1;
  int stage = 0;  ///< of a unit that has stages: a number in the list of stages_of
  friend constexpr bool operator==(const Task&, const Task&) = default;
};

/// The tasks of a pass, in the order in which every rank does them.
using Schedule = std::vector<Task>;

/// Returns the action's name, as `--print-schedule` writes it.
constexpr std::string_view name_of(Action action) {
  switch (action) {
    case Action::gather: return "gather";
    case Action::gather_in_group: return "gather-in-group";
    case Action::gather_across: return "gather-across";
    case Action::forward: return "forward";
    case Action::loss: return "loss";
    case Action::backward: return "backward";
    case Action::keep: return "keep";
    case Action::release: return "release";
    case Action::open_gradient: return "open-gradient";
    case Action::reduce: return "reduce";
    case Action::reduce_across: return "reduce-across";
    case Action::close_gradient: return "close-gradient";
    case Action::send_input: return "send-input";
    case Action::fetch_input: return "fetch-input";
    case Action::exchange: return "exchange";
  }
  return "?";
}

/// Names of units and groups for messages. Without them, numbers are used: "unit 2", "group 2".
struct Names {
  std::vector<std::string> units;   ///< by their index
  std::vector<std::string> groups;  ///< by their index
  std::vector<Stages> stages = {};  ///< of units, by their index; a unit beyond has none
};

/// Returns the name of what a task works on, such as "block 1", or "block 1 between 0" where units have stages.
std::string subject_of(const Task& task, const Names& names);

/// Returns a task as text, such as "release block 1".
std::string text_of(const Task& task, const Names& names);

}  // namespace fsdp::sharding

// Compiled into the library.
extern template class std::vector<fsdp::sharding::Task>;

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The schedule of a pass as a value: gathers, computations, releases and reductions, in order. actions.hpp describes
/// each action.
///
/// `make_schedule` (scheduler.hpp) derives the list from a strategy's rules, or the strategy provides one. `check`
/// validates it (check.hpp), `assign_slots` assigns the slots (slots.hpp), and the executor runs exactly this list.
#pragma once

#include <string>
#include <vector>

#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/sharding/actions.hpp>
#include <tessera/fsdp/sharding/stages.hpp>

namespace fsdp::sharding {

/// One entry of a schedule. `index` refers to a unit if the action works on one, else to a group of weights.
struct Task {
  Action action = Action::forward;  ///< the action
  int index = 0;                    ///< index of the unit or group, from 0
  int micro_batch = 0;              ///< index of the micro-batch, from 0
  /// The slot of a gather, gather_in_group, release, open_gradient or close_gradient; the device buffer of a send_input
  /// or fetch_input. -1 if there is no slot, or it is not assigned yet.
  int slot = -1;
  int stage = 0;  ///< for a unit that has stages: index in the list of stages_of
  friend constexpr bool operator==(const Task&, const Task&) = default;
};

/// The tasks of a pass, in the order in which every rank executes them.
using Schedule = std::vector<Task>;

/// Names of units and groups for messages. Without them, numbers are used: "unit 2", "group 2".
struct Names {
  std::vector<std::string> units;   ///< by their index
  std::vector<std::string> groups;  ///< by their index
  std::vector<Stages> stages = {};  ///< stages of the units, by index; units beyond the end have no stages
};

/// Returns the name of a task's unit or group, such as "block 1", or "block 1 between 0" if units have stages.
std::string subject_of(const Task& task, const Names& names);

/// Returns a task as text, such as "release block 1".
std::string text_of(const Task& task, const Names& names);

}  // namespace fsdp::sharding

// Compiled into the library.
FSDP_LIST(fsdp::sharding::Task)

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The schedule of a pass as a value: gathers, computations, releases and reductions, in order. actions.hpp has what
/// each of them is.
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
FSDP_LIST(fsdp::sharding::Task)

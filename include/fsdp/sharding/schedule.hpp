// SPDX-License-Identifier: Apache-2.0
/// @file
/// The schedule of a pass as a value: gathers, computations, releases and reductions, in order; and the stages into
/// which units are split if several ranks share their sequences. actions.hpp describes each action.
///
/// `make_schedule` (scheduler.hpp) derives the list from a strategy's rules, or the strategy provides one. `check`
/// validates it (check.hpp), `assign_slots` assigns the slots (slots.hpp), and the executor runs exactly this list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/sharding/actions.hpp>

namespace fsdp::sharding {

/// How a unit's computations are split into stages if several ranks share its sequences. The operations before and
/// after a block's middle (attention) process this rank's rows; the middle processes all rows of this rank's heads, in
/// one or more parts, a few heads at a time. In between is an exchange over these ranks. Two parts are in flight at a
/// time, so that the next exchange can overlap the current middle.
struct Stages {
  int parts = 0;         ///< number of parts of the middle; 0 if the unit has no stages and no exchanges
  bool replays = false;  ///< backward first recomputes what forward did not keep, including its exchanges
  friend constexpr bool operator==(const Stages&, const Stages&) = default;
};

/// The computation of a stage, or the data of an exchange. The steps of forward come first, then the steps that only
/// backward has.
enum class Step : std::uint8_t {
  before,    ///< computes the inputs of the middle, for this rank's rows
  to_heads,  ///< exchange: receives all rows of this rank's heads
  between,   ///< computes the middle
  to_rows,   ///< exchange: receives this rank's rows of all heads
  after,     ///< computes the rest of the unit, for this rank's rows
  after_backward,
  gradient_to_heads,
  between_backward,
  gradient_to_rows,
  before_backward,
};

/// Whether a step is an exchange.
constexpr bool exchanges(Step step) {
  return step == Step::to_heads || step == Step::to_rows || step == Step::gradient_to_heads ||
         step == Step::gradient_to_rows;
}

/// Returns the step's name, as `--print-schedule` prints it.
constexpr std::string_view name_of(Step step) {
  switch (step) {
    case Step::before: return "before";
    case Step::to_heads: return "to-heads";
    case Step::between: return "between";
    case Step::to_rows: return "to-rows";
    case Step::after: return "after";
    case Step::after_backward: return "after-backward";
    case Step::gradient_to_heads: return "gradient-to-heads";
    case Step::between_backward: return "between-backward";
    case Step::gradient_to_rows: return "gradient-to-rows";
    case Step::before_backward: return "before-backward";
  }
  return "?";
}

/// One stage, or one exchange.
struct Stage {
  Step step = Step::before;  ///< the computation or exchange
  int part = 0;              ///< part of the middle; 0 for `after` and `after_backward`, which cover all parts
  bool backward = false;     ///< belongs to the unit's backward
  friend constexpr bool operator==(const Stage&, const Stage&) = default;
};

/// Returns the number of the first stage of a unit's backward in the list of `stages_of`, and the length of that list.
/// @{
constexpr int first_backward_stage(const Stages& stages) { return 4 * stages.parts + 1; }
constexpr int stage_count(const Stages& stages) {
  return first_backward_stage(stages) + 4 * stages.parts * (stages.replays ? 2 : 1) + 1;
}
/// @}

namespace detail {

/// Adds the stages up to the middle's last exchange.
constexpr void add_middle(std::vector<Stage>& list, int parts, bool backward) {
  const auto begin = [&](int part) {
    list.push_back({Step::before, part, backward});
    list.push_back({Step::to_heads, part, backward});
  };
  begin(0);
  for (int part = 0; part < parts; ++part) {
    if (part + 1 < parts) begin(part + 1);
    list.push_back({Step::between, part, backward});
    list.push_back({Step::to_rows, part, backward});
  }
}

}  // namespace detail

/// Returns a unit's stages and exchanges: those of forward, then those of backward, in the order of computation. A
/// task's `stage` is an index in this list. An exchange comes directly after the stages that produce its data.
constexpr std::vector<Stage> stages_of(const Stages& stages) {
  std::vector<Stage> list;
  if (stages.parts == 0) return list;
  list.reserve(static_cast<std::size_t>(stage_count(stages)));
  detail::add_middle(list, stages.parts, false);
  list.push_back({Step::after, 0, false});
  if (stages.replays) detail::add_middle(list, stages.parts, true);
  list.push_back({Step::after_backward, 0, true});
  list.push_back({Step::gradient_to_heads, 0, true});
  for (int part = 0; part < stages.parts; ++part) {
    if (part + 1 < stages.parts) list.push_back({Step::gradient_to_heads, part + 1, true});
    list.push_back({Step::between_backward, part, true});
    list.push_back({Step::gradient_to_rows, part, true});
    if (part > 0) list.push_back({Step::before_backward, part - 1, true});
  }
  list.push_back({Step::before_backward, stages.parts - 1, true});
  return list;
}

/// Whether a stage produces the data of an exchange.
constexpr bool sends_by(const Stage& stage, const Stage& exchange) {
  if (stage.backward != exchange.backward) return false;
  if (exchange.step == Step::gradient_to_heads) return stage.step == Step::after_backward;
  return stage.part == exchange.part && static_cast<int>(stage.step) + 1 == static_cast<int>(exchange.step);
}

/// Whether a stage reads the data of an exchange.
constexpr bool reads_from(const Stage& stage, const Stage& exchange) {
  if (stage.backward != exchange.backward || !exchanges(exchange.step)) return false;
  if (exchange.step == Step::to_rows) return stage.step == (exchange.backward ? Step::after_backward : Step::after);
  return stage.part == exchange.part && static_cast<int>(stage.step) == static_cast<int>(exchange.step) + 1;
}

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

namespace detail {

/// See each.
template <class T>
struct Elements {
  T* first = nullptr;
  T* last = nullptr;
  constexpr T* begin() const { return first; }
  constexpr T* end() const { return last; }
};

/// Returns the elements of a list for a loop over pointers, which a constant evaluation runs faster than a loop
/// over the list's own iterators: each of their operators is a call.
/// @{
template <class T>
constexpr Elements<T> each(std::vector<T>& list) {
  return {list.data(), list.data() + list.size()};
}
template <class T>
constexpr Elements<const T> each(const std::vector<T>& list) {
  return {list.data(), list.data() + list.size()};
}
/// @}

}  // namespace detail

/// Whether a list has a task with such an action: `has_any(list, copies_input)`.
constexpr bool has_any(const Schedule& schedule, bool (*is_such)(Action)) {
  for (const Task& task : detail::each(schedule))
    if (is_such(task.action)) return true;
  return false;
}

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
FSDP_LIST(fsdp::sharding::Stage)

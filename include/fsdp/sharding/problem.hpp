// SPDX-License-Identifier: Apache-2.0
/// @file
/// The input of a schedule: a strategy's facts and rules, units and groups of weights, the order of computations, the
/// ranks, and the pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>

namespace fsdp::sharding {

/// The communication over the outer axis of a mesh, once per step.
enum class Across : std::uint8_t {
  nothing,     ///< there is no outer axis, or a group's own reduction covers it
  all_reduce,  ///< optimizer state is replicated over it
  shard,       ///< optimizer state is sharded over it: reduce-scatter, and a gather at the first use in a step
};

/// The memory that a strategy needs, and the ranks that share it, independent of the schedule.
struct Facts {
  Across across = Across::nothing;         ///< communication over the mesh's outer axis
  bool group_after_forward = false;        ///< after forward each rank of the inner axis keeps a part of the weights
  std::int64_t persistence_threshold = 0;  ///< tensors of at most this many elements form a separate group per unit
  int pieces = 0;  ///< pieces of a step's batch, the same on any number of ranks (piece_of); 0: not split
  /// Whether sums are added in the order of ranks, for results that do not depend on their number.
  constexpr bool sums_in_order() const { return pieces > 0; }
  /// Upper bound for the bytes of the slots for gathered weights. In training and evaluation, each group then stays
  /// gathered for the duration that minimises the gathered bytes (slots.hpp), which overrides Rules::hold; in a
  /// PerUnit, only groups with Hold::use. 0: no bound; below 0: not known yet (fsdp::memory_left).
  std::int64_t budget = 0;
  /// Whether every rank holds all weights between steps. facts_of sets it if AtRest is Replicate. A type of which only
  /// some values replicate declares Shard, and sets this for those values.
  bool whole_at_rest = false;
  friend constexpr bool operator==(const Facts&, const Facts&) = default;
};

/// Pieces make results independent of the number of ranks P. A step's batch is split into V pieces, the same for every
/// P; piece v is micro-batch v / P of rank v % P. The owner of a shard adds the pieces' gradients in order, so that the
/// sum is ((g0 + g1) + g2) + ... for every P. If P does not divide V, some ranks have no piece in the last micro-batch.
/// If several ranks share each sequence, "rank" here means such a group of ranks (SequenceGroup), and P is the number
/// of groups.
/// @{

/// Returns the number of micro-batches of a step of `pieces` (at least 1) pieces on `ranks` ranks.
constexpr int micro_batches_of(int pieces, int ranks) { return (pieces - 1) / ranks + 1; }

/// Returns the index of a rank's piece in a micro-batch; the rank has a piece only if this index is below `pieces`.
constexpr int piece_of(int micro_batch, int rank, int ranks) { return micro_batch * ranks + rank; }

/// Returns the number of pieces that a rank computes, one in each of its first micro-batches.
constexpr int pieces_of_rank(int pieces, int rank, int ranks) {
  return pieces > rank ? (pieces - rank - 1) / ranks + 1 : 0;
}
/// @}

/// How long weights stay gathered.
enum class Hold : std::uint8_t {
  use,          ///< from just before to just after each use
  micro_batch,  ///< from the first use in a micro-batch to the last
  step,         ///< from the first use in a step to its end
  always,       ///< weights are never resharded: every rank has them at rest
};

/// The groups of weights that a unit uses, and whether its backward needs them.
struct UnitUse {
  std::vector<int> groups;             ///< indices of the groups whose weights it uses
  bool backward_needs_weights = true;  ///< false if its backward does not read the weights, as for an embedding
  /// False if its backward only propagates activation gradients and makes no weight gradients.
  bool makes_gradients = true;
  bool offloads_input = false;  ///< in training, its input is in host memory from its forward to its backward
  Stages stages = {};           ///< its stages if several ranks share a sequence
};

/// Sizes of the mesh's axes for the groups of a strategy that are not resident.
struct Axes {
  int shard = 1;   ///< number of ranks over which a group is sharded
  int across = 1;  ///< number of ranks that hold the same shard
  int keep = 0;    ///< number of ranks that together keep the weights after forward; 0 if the strategy keeps nothing

  /// Whether k ranks each keep a part of the weights after forward, with k neither 1 nor all ranks of the axis.
  constexpr bool keeps_parts() const { return keep > 1 && keep < shard; }
};

/// Rules from which `make_schedule` derives a schedule.
struct Rules {
  Facts facts = {};                      ///< memory and use of the mesh
  Hold hold = Hold::use;                 ///< how long a unit's weights stay gathered
  bool reduce_every_micro_batch = true;  ///< false: partial sums are kept, and reduced after the last micro-batch
  int prefetch_depth = 1;                ///< number of computations by which a gather is issued before its use
  /// Upper bound for the elements gathered at the same time for single uses; 0: no bound. If groups have different
  /// element types, an element is one of the smallest type.
  std::int64_t live_bound = 0;
  friend constexpr bool operator==(const Rules&, const Rules&) = default;
};

/// Returns the hold of the groups of a strategy with these rules on these axes.
constexpr Hold hold_of(const Rules& rules, const Axes& axes) {
  // With k = 1 the kept part is the whole group, so the group is simply not released.
  if (rules.hold != Hold::always && axes.keep == 1 && axes.shard > 1) return Hold::micro_batch;
  return rules.facts.budget != 0 && rules.hold != Hold::always ? Hold::use : rules.hold;
}

/// The properties of a group of weights.
struct GroupFacts {
  bool resident = false;    ///< whole on every rank at rest: never gathered, its gradient all-reduced once a step
  bool gathered = true;     ///< false if no computation uses the whole group; its rows are sent instead (RowTable)
  bool persistent = false;  ///< small tensors: once gathered, they stay gathered to the end of the step
  Across across = Across::nothing;  ///< what happens over the mesh's outer axis
  bool trainable = true;            ///< frozen weights have no gradient
  std::int64_t elements = 0;        ///< number of elements of its tensors, without padding
  /// Elements of its slots; 0 if it is used in place in its buffer at rest (one rank, or resident).
  std::int64_t slot_elements = 0;
  /// Only its weights are used in place in the buffer at rest (one rank that has pieces).
  bool weights_at_rest = false;
  std::int64_t bytes_per_weight = 1;    ///< bytes per element of its gathered weights
  std::int64_t bytes_per_gradient = 1;  ///< bytes per element of its gradients while they are summed
  Axes axes = {};                       ///< sizes of its strategy's axes
  /// How long its weights stay gathered, and when its gradients are reduced, by the rules of its strategy. Ignored if
  /// the strategy has its own schedule.
  /// @{
  Hold hold = Hold::use;
  bool reduce_every_micro_batch = true;
  /// @}
  /// Whether its weights stay gathered through the head if they would be gathered again directly after it.
  bool held_to_head = true;

  /// Return the bytes of its slots; 0 if it needs none.
  /// @{
  constexpr std::int64_t weight_slot_bytes() const { return weights_at_rest ? 0 : slot_elements * bytes_per_weight; }
  constexpr std::int64_t gradient_slot_bytes() const { return slot_elements * bytes_per_gradient; }
  /// @}
  /// Returns the bytes of its gathered weights, without padding.
  constexpr std::int64_t weight_bytes() const { return elements * bytes_per_weight; }
};

/// The kind of pass that a schedule is made for.
enum class Pass : std::uint8_t {
  train,           ///< all micro-batches of a step, forward and backward
  evaluate,        ///< forward only; the loss computes no gradient
  generate,        ///< forward only; the weights that it gathers stay gathered
  generate_again,  ///< forward with the weights that `generate` left gathered
};
inline constexpr std::size_t pass_count = 4;  ///< number of values of Pass

/// Returns a pass's name in messages: the activity of a rank in it.
constexpr std::string_view name_of(Pass pass) {
  switch (pass) {
    case Pass::train: return "training";
    case Pass::evaluate: return "evaluating";
    case Pass::generate: return "generating";
    case Pass::generate_again: return "generating again";
  }
  return "?";
}

/// One computation of an order.
struct Computation {
  Action action = Action::forward;  ///< forward, loss (forward and backward as one computation) or backward
  int unit = 0;                     ///< index of the unit
  friend constexpr bool operator==(const Computation&, const Computation&) = default;
};

/// All inputs from which a strategy derives a schedule.
struct Problem {
  std::vector<UnitUse> units;      ///< in the order of declaration
  std::vector<GroupFacts> groups;  ///< units refer to them by index
  int micro_batches = 1;           ///< number of micro-batches of a step
  /// Number of pieces of a step (see Facts); if above 0, gradients must be reduced in every micro-batch.
  int pieces = 0;
  Pass pass = Pass::train;  ///< kind of pass
  /// Collectives overlap computation, so that a second gradient slot improves throughput.
  bool overlap = false;
  /// The computations of a micro-batch, in order; a unit may occur any number of times. Passes other than training skip
  /// the backward computations. If empty: forward through all units, the loss in the last one, backward to the first
  /// trainable one.
  std::vector<Computation> order = {};
  /// Whether a group uses the same slot for every use, so that views that outlive a use (in an autograd engine) are
  /// valid again in the next use.
  bool fixed_slots = false;
  /// How long each group stays gathered whose rules release it after each use; empty: as they specify. See slots.hpp.
  std::vector<Hold> holds = {};

  /// Return a unit or a group by its index, from 0.
  /// @{
  constexpr const UnitUse& unit(int index) const { return units[static_cast<std::size_t>(index)]; }
  constexpr const GroupFacts& group(int index) const { return groups[static_cast<std::size_t>(index)]; }
  /// @}

  /// Whether a computation reads the weights of its unit.
  constexpr bool uses_weights(const Task& task) const {
    return computes_forward(task.action) || (computes_backward(task.action) && unit(task.index).backward_needs_weights);
  }
  /// Whether a computation is the first or the last of its unit's consecutive stages.
  /// @{
  constexpr bool begins(const Task& task) const {
    return task.stage == 0 || task.stage == first_backward_stage(unit(task.index).stages);
  }
  constexpr bool ends(const Task& task) const {
    const Stages& stages = unit(task.index).stages;
    return stages.parts == 0 || task.action == Action::loss || task.stage + 1 == first_backward_stage(stages) ||
           task.stage + 1 == stage_count(stages);
  }
  /// @}
  /// Whether a computation writes the gradients of its unit's trainable groups.
  constexpr bool writes_gradients(const Task& task) const {
    return pass == Pass::train && computes_backward(task.action) && unit(task.index).makes_gradients;
  }
  /// Whether a unit's input is sent to host memory and fetched in this pass.
  constexpr bool offloads(int index) const { return pass == Pass::train && unit(index).offloads_input; }
};

/// Returns the lowest unit that has a backward, which is the first with a trainable group; the number of units if no
/// unit has one.
constexpr int first_backward(const Problem& problem) {
  int lowest = 0;
  for (const UnitUse& unit : problem.units) {
    for (const int group : unit.groups)
      if (problem.group(group).trainable) return lowest;
    ++lowest;
  }
  return lowest;
}

namespace detail {

/// Adds a computation, split into stages if its unit has any.
constexpr void add_computation(Schedule& list, const Problem& problem, const Task& task) {
  const Stages& stages = problem.unit(task.index).stages;
  if (stages.parts == 0 || task.action == Action::loss) {
    list.push_back(task);
    return;
  }
  int number = 0;
  for (const Stage& stage : stages_of(stages)) {
    if (stage.backward == (task.action == Action::backward) && !exchanges(stage.step)) {
      list.push_back(task);
      list.back().stage = number;
    }
    ++number;
  }
}

}  // namespace detail

/// Returns all computations of the pass, in the problem's order.
constexpr Schedule computations(const Problem& problem) {
  Schedule list;
  for (int m = 0; m < problem.micro_batches; ++m)
    for (const Computation& next : problem.order)
      if (problem.pass == Pass::train || computes_forward(next.action))
        detail::add_computation(list, problem, {.action = next.action, .index = next.unit, .micro_batch = m});
  if (!problem.order.empty()) return list;
  const int units = static_cast<int>(problem.units.size());
  const int lowest = first_backward(problem);
  if (problem.micro_batches > 0)
    list.reserve(2 * problem.units.size() * static_cast<std::size_t>(problem.micro_batches));
  for (int m = 0; m < problem.micro_batches; ++m) {
    for (int unit = 0; unit + 1 < units; ++unit)
      detail::add_computation(list, problem, {.action = Action::forward, .index = unit, .micro_batch = m});
    list.push_back({.action = Action::loss, .index = units - 1, .micro_batch = m});
    if (problem.pass == Pass::train)
      for (int unit = units - 2; unit >= lowest; --unit)
        detail::add_computation(list, problem, {.action = Action::backward, .index = unit, .micro_batch = m});
  }
  return list;
}

/// Number of buffers that inputs which do not stay on the device use alternately.
inline constexpr int input_buffers = 2;

/// Returns, for each unit, the buffer of its input in forward, by the problem's default order: 0 or 1, or -1 for inputs
/// that stay on the device until their backward, and for the first unit's. The two buffers alternate between the inputs
/// that are in host memory in between, the inputs that no backward needs, and the inputs of the last two units, whose
/// backward is next. Empty if no input is offloaded.
constexpr std::vector<int> buffers_of_inputs(const Problem& problem) {
  const int units = static_cast<int>(problem.units.size());
  const int lowest = first_backward(problem);
  std::vector<int> buffers(problem.units.size(), -1);
  int in_turn = 0;
  bool any = false;
  for (int unit = 1; unit < units; ++unit) {
    any = any || problem.offloads(unit);
    if (problem.offloads(unit) || unit < lowest || unit + 2 >= units)
      buffers[static_cast<std::size_t>(unit)] = in_turn++ % input_buffers;
  }
  if (!any) buffers.clear();
  return buffers;
}

}  // namespace fsdp::sharding

// Compiled into the library.
FSDP_LIST(fsdp::sharding::Hold)
FSDP_LIST(fsdp::sharding::UnitUse)
FSDP_LIST(fsdp::sharding::GroupFacts)
FSDP_LIST(fsdp::sharding::Computation)

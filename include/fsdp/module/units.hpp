// SPDX-License-Identifier: Apache-2.0
/// @file
/// Units of named tensors, the groups made from them, which are gathered and reduced together, with their layout over
/// ranks, and the orders in which units are computed. Also OptimizerGroup: groups of parameters with separate optimizer
/// settings.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/precision/by_tensor.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp {

/// The parameters that match all of `parameters`, `units` and `role`, and their separate optimizer settings. Patterns
/// match whole names, with *, ? and [...] as in a shell. A parameter may be in several groups if these set different
/// settings, or the same learning rate or weight decay; at most one group clips it.
struct OptimizerGroup {
  std::string parameters = "*";   ///< pattern of the parameters' names
  std::string units = "*";        ///< pattern of the names of the units that have the parameters
  std::optional<Role> role = {};  ///< role of the parameters; nullopt: any role
  std::optional<double> lr = {};  ///< factor of the learning rate
  /// Replaces the optimizer's weight decay, also for parameters that otherwise do not decay.
  std::optional<double> weight_decay = {};
  /// Maximum norm of the group's gradients, which are then excluded from the norm of the other gradients. 0: not
  /// clipped.
  std::optional<double> clip = {};
  bool frozen = false;  ///< not trained, as UnitOptions::frozen

  /// Returns a description of the group's parameters for messages: "'*.bias'", "'*' of units 'block 0'", "'*' of role
  /// vector".
  std::string selection() const;
  /// Throws InputError for a number out of its range, for a group that sets nothing, and for a frozen group that sets
  /// numbers.
  void check() const;

  friend bool operator==(const OptimizerGroup&, const OptimizerGroup&) = default;
};

/// A number that a group may set. Its minimum is 0.
struct GroupNumber {
  std::string_view name;  ///< name in messages and flags
  std::optional<double> OptimizerGroup::*value;
  double most;
};
/// All numbers that a group may set.
inline constexpr std::array<GroupNumber, 3> group_numbers{{{"lr", &OptimizerGroup::lr, 1000},
                                                           {"weight-decay", &OptimizerGroup::weight_decay, 1000},
                                                           {"clip", &OptimizerGroup::clip, 1e30}}};

/// Tensors that are gathered before a computation uses them, and whose gradients are reduced after it.
struct Unit {
  std::string name;  ///< name in messages, schedules and traces
  std::vector<Parameter> parameters;
  bool backward_needs_weights = true;  ///< false if it is not gathered for its backward, as for an embedding
  /// False if no computation uses it whole, so that it is never gathered or reduced. Its rows are sent instead
  /// (RowTable).
  bool gathered = true;
  std::vector<int> absent = {};  ///< fields of the unit that have no parameter, ascending, from 0
  sharding::Stages stages = {};  ///< stages of its computation if several ranks share a sequence
};

/// Returns a unit with these fields; `prefix` is prepended to their names.
Unit unit_of(std::string name, std::span<const Field> fields, std::string_view prefix, bool backward_needs_weights);

/// Returns a unit from a struct of fields: `unit_of<Fields>("encoder", fields, "encoder.")`.
template <template <class> class Fields>
Unit unit_of(std::string name, const Fields<Field>& fields, std::string_view prefix = "",
             bool backward_needs_weights = true) {
  return unit_of(std::move(name), flatten<Fields>(fields), prefix, backward_needs_weights);
}

/// Returns every parameter of the units once, in order; a shared weight appears at its first occurrence.
std::vector<Parameter> distinct_parameters(std::span<const Unit> units);
/// Returns the number of elements of all distinct parameters.
std::int64_t distinct_elements(std::span<const Unit> units);

/// Returns the cost for an elementwise optimizer: the number of elements.
inline std::int64_t elementwise_work(const Parameter& parameter) { return parameter.shape.numel(); }

/// What layouts use of an optimizer.
struct StepWork {
  using OfParameter = std::function<std::int64_t(const Parameter&)>;
  OfParameter cost = elementwise_work;  ///< cost of a step on a whole parameter, in any unit
  /// Number of consecutive elements, counted from the parameter's first, that the optimizer needs on one rank; a
  /// parameter's last block may have fewer. 0: any range; null: 0 for all parameters.
  OfParameter block = nullptr;

  /// Returns the cost of a step on a whole parameter.
  std::int64_t operator()(const Parameter& parameter) const { return cost(parameter); }
  /// Returns `block` of a parameter, at most its number of elements. Throws InputError if it is negative.
  std::int64_t block_of(const Parameter& parameter) const;
};

/// Options of units that do not depend on the strategy. Patterns match whole names, with * and ? as in a
/// shell.
struct UnitOptions {
  /// Number of consecutive units that are gathered and reduced together, except the first and the last: a model's
  /// blocks.
  std::int64_t blocks_per_unit = 1;
  std::int64_t merge_below = 0;  ///< a unit with fewer elements is merged with its neighbour
  /// Blocks save only their input and recompute the rest in backward (tessera/fsdp/nn/recomputed.hpp).
  bool recompute = false;
  /// Share of the recomputed blocks, 0 to 1, whose inputs are in host memory between forward and backward
  /// (offloaded_blocks). Results do not depend on it.
  double offload_inputs = 0;
  bool keep_last_block = true;  ///< the last block's weights stay gathered through the head
  /// Patterns of parameters that are whole on every rank; their gradients are all-reduced once per step.
  std::vector<std::string> replicated = {};
  /// Patterns of parameters that are not trained: no gradient, no optimizer state, no reduction. In a model with
  /// adapters, all parameters except the adapters are frozen too.
  std::vector<std::string> frozen = {};
  std::vector<OptimizerGroup> groups = {};  ///< groups of parameters with separate optimizer settings
  FloatWeights precision = {};              ///< the value of a stack's PrecisionBy
  /// Float tensors (PrecisionBy) of at most this many elements, of consecutive units other than the first and the last,
  /// are gathered and reduced together; 0: those of each unit separately.
  std::int64_t join_float_below = 0;

  friend bool operator==(const UnitOptions&, const UnitOptions&) = default;
};

/// Returns which of `blocks` blocks, from 0, have their inputs in host memory: `share` of the blocks, rounded up, but
/// never the last block, whose backward comes first. They are evenly spaced, so that each copy can overlap the
/// computation of the same number of blocks.
std::vector<int> offloaded_blocks(double share, int blocks);

/// Whether any of the shell patterns matches the name.
bool matches_any(const std::vector<std::string>& patterns, const std::string& name);

/// Returns the parameters of a group, each once, in order.
std::vector<Parameter> parameters_of(const OptimizerGroup& group, std::span<const Unit> units);

/// What the tensors of a group have in common.
struct GroupKind {
  bool replicated = false;
  bool frozen = false;
  bool persistent = false;  ///< small tensors: once gathered, they stay gathered to the end of the step
  bool gathered = true;     ///< false for units that are never gathered
  bool is_float = false;    ///< weights are float next to 16-bit weights (PrecisionBy)
  std::size_t part = 0;     ///< index of its strategy (StrategyCalls::parts)
  friend auto operator<=>(const GroupKind&, const GroupKind&) = default;
};

/// Tensors that are gathered and reduced together.
struct GroupedParameters : GroupKind {
  std::string name;  ///< name in messages
  std::vector<Parameter> parameters;

  /// Returns the number of elements of all its tensors, without padding.
  std::int64_t elements() const;
};

/// A unit's parameter as a group and an index into that group's tensors.
struct Reference {
  int group = 0;  ///< index of the group; below 0 if the unit does not have this parameter
  int index = 0;

  /// Whether the unit has such a parameter.
  bool present() const { return group >= 0; }
  friend bool operator==(const Reference&, const Reference&) = default;
};

/// Throws InputError for an invalid number of axes, a negative extent, or more elements than fit in any memory. `what`:
/// the beginning of the message, such as "units: parameter 'w' of encoder".
void check_shape(std::string_view what, const Shape& shape);

/// The result of group_parameters.
struct UnitGroups {
  std::vector<GroupedParameters> groups;
  std::vector<sharding::UnitUse> uses;             // [units]
  std::vector<std::vector<Reference>> references;  // [units][fields of the unit]
};

/// Puts the parameters of units into groups. First comes one group per unit, in order (units may be merged, as
/// `options` specify); then one for each weight that different units share; then the parts of units that are
/// replicated, frozen or persistent, or have another strategy (`parts`) or precision, while the rest of the unit does
/// not. Tensors of at most the persistence threshold of their strategy are persistent. With `keeps_joined`, tensors
/// that join each other (Parameter::joins_previous) are persistent together or not at all, so that the matmuls of a
/// unit do not depend on the threshold. Sets each parameter's Parameter::step. Throws InputError if a number of
/// `options` or of a unit is out of range, a pattern, an alternative of one or a group matches nothing, patterns of
/// strategies (with UnitOptions::replicated) or precisions overlap, groups give a parameter different values,
/// everything is frozen, a unit or a parameter has no name, or two tensors of different shapes share a name.
UnitGroups group_parameters(std::span<const Unit> units, const UnitOptions& options,
                            std::span<const StrategyPart> parts, bool keeps_joined = false);
/// The same for one strategy without persistent tensors.
UnitGroups group_parameters(std::span<const Unit> units, const UnitOptions& options);

/// Throws InputError for a weight that is selected to be float, and whose module does not compute with it in float
/// (Parameter::may_be_float).
void require_float_weights(std::span<const Unit> units, const FloatWeights& floats);

/// Returns the number of elements of the groups that are not frozen. Throws as group_parameters does.
std::int64_t trained_elements(std::span<const Unit> units, const UnitOptions& options);

/// Returns the facts about a group that a schedule depends on. `part`: its strategy; `axes`: the axes of that.
sharding::GroupFacts facts_of(const GroupedParameters& group, const StrategyPart& part, const sharding::Axes& axes);

/// The tensors of a group and their layout over ranks: the part of ParameterGroup that does not depend on a stack's
/// types.
class GroupTensors {
 public:
  /// `layout` is the layout over the ranks of the group's axes; `kept`, which may be empty, the layout over the ranks
  /// that keep weights after forward.
  GroupTensors(std::vector<Parameter> parameters, const sharding::GroupFacts& facts, buffer::Layout layout,
               buffer::Layout kept);
  GroupTensors(GroupTensors&&) noexcept;
  ~GroupTensors();

  /// The group's tensors, their layout, and the facts about the group that a schedule depends on.
  /// @{
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const buffer::Layout& layout() const { return *layout_; }
  const sharding::GroupFacts& facts() const { return facts_; }
  /// @}

  /// Returns the ranges that a rank of the world steps if the group is trained.
  std::vector<buffer::TensorRange> stepped_ranges(int rank) const;

  /// Returns the number of elements that a rank of the world keeps after forward, if k ranks together keep the weights;
  /// else 0.
  std::int64_t kept_size_of(int rank) const;

  /// Returns a hash of the group's layouts; ranks compare these hashes.
  std::uint64_t digest_of_layouts() const;

 protected:
  std::vector<Parameter> parameters_;
  std::unique_ptr<const buffer::Layout> layout_, kept_layout_;
  sharding::GroupFacts facts_;
  std::unique_ptr<bool[]> written_;  ///< [parameters]: whether the parameter's gradient was written
};

/// The groups of a module, in order.
using GroupList = std::span<const GroupTensors* const>;

/// Returns three element counts of a rank of the world: trained elements at rest, all elements at rest, and elements
/// that it keeps after forward.
std::array<std::int64_t, 3> elements_of(GroupList groups, int rank);

/// Returns the first trained parameter that is cut over ranks inside of a block of the optimizer (StepWork::block); not
/// present if there is none.
Reference first_cut(GroupList groups, const StepWork& step);

/// Returns the groups in the form that layout policies take; `aligned` is as in TensorGroup. The block of a trained
/// tensor consists of whole blocks of the parameter and of whole blocks of the optimizer, if both state one.
std::vector<buffer::TensorGroup> specs_of(std::span<const GroupedParameters> groups, const StepWork& step,
                                          bool aligned);

/// A part of a parameter that this rank holds; the views are into the buffers at rest.
template <class Main, class Compute, class Accumulate, class Model = Tensor<Compute>>
struct ParameterShard {
  const Parameter* parameter = nullptr;
  int group = 0;           ///< index of its group
  std::int64_t begin = 0;  ///< index of its first element in the whole tensor
  Tensor<Main> main;       ///< empty if the shard is frozen and main weights would be a separate copy
  Model model;             ///< the same memory as `main` if there is one copy of the weights
  Tensor<const Accumulate> gradient;
  /// Index of its first element among this rank's trained elements, and so into optimizer state.
  std::int64_t resting = 0;
  bool trainable = true;
  /// One of the ranks that hold replicas of a shard owns it: it writes the shard to files and counts it in norms.
  bool owned = true;

  /// Whether the shard has main weights.
  bool has_main() const { return main.data() != nullptr; }
  /// Returns the number of elements of the shard.
  std::int64_t count() const {
    std::int64_t count = main.numel();
    if (!has_main()) with_view(model, [&](const auto& view) { count = view.numel(); });
    return count;
  }
};

/// The computations of one micro-batch, in the order in which every rank performs them. With skip connections,
/// recurrence or tied weights, a unit is used several times, or not in the order of declaration. Passes other than
/// training skip the backward computations.
struct Order {
  std::vector<sharding::Computation> list;
  /// Units whose backward computes no weight gradients, such as a discriminator in the generator's step. Groups for
  /// which an order computes no gradient are not stepped after its pass.
  std::vector<int> without_gradients = {};
};

/// Returns forward 0 .. units - 1, then backward units - 1 .. 0.
Order chain(int units);
/// Returns forward in the order of `uses`, then backward in reverse order; with `head`, that unit's forward and
/// backward come in between as one computation.
/// @{
Order mirrored(std::span<const int> uses, std::optional<int> head = {});
Order mirrored(std::initializer_list<int> uses, std::optional<int> head = {});
/// @}

/// The use of a module. A module that generates gathers all weights once and keeps them.
enum class Purpose : std::uint8_t { train, evaluate, generate };

/// Passes that units are planned for; no other passes run on them.
struct PassPlan {
  UnitOptions unit_options = {};
  /// The orders, which passes select by index. If empty: the default order, in which the last unit computes the loss
  /// (sharding::Problem::order).
  std::vector<Order> orders = {};
  int micro_batches = 1;
  /// Whether passes may have fewer micro-batches. All numbers below 16 are planned in advance, and of the larger
  /// numbers a half, a quarter and so on of `micro_batches`; any other number is planned when a pass first uses it.
  bool fewer = false;
  bool repeats = false;        ///< a micro-batch may be computed again without its reductions (Reductions::left_out)
  bool fixed_slots = false;    ///< see sharding::Problem
  int ranks_per_sequence = 1;  ///< consecutive ranks that share each micro-batch (SequenceGroup)
  Purpose purpose = Purpose::train;
};

}  // namespace fsdp

// Compiled into the library.
FSDP_LIST(fsdp::Unit)
FSDP_LIST(fsdp::GroupedParameters)
FSDP_LIST(fsdp::Reference)
FSDP_LIST(std::vector<fsdp::Reference>)
FSDP_LIST(fsdp::OptimizerGroup)
FSDP_LIST(fsdp::Order)
FSDP_LIST(const fsdp::GroupTensors*)
FSDP_LIST(fsdp::ParameterShard<float, float, float>)
FSDP_LIST(fsdp::ParameterShard<float, fsdp::bf16, float>)

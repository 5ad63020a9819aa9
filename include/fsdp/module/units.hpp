// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's list of units, and the groups of tensors made from it, which are gathered and reduced together.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/one_of.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/rules.hpp>

namespace fsdp {

/// A parameter of a model: its full checkpoint name; the other fields are those of nn::Parameter.
struct NamedParameter {
  std::string name;
  Shape shape;
  nn::Initial initial = {};
  nn::Role role = shape.rank == 2 ? nn::Role::matrix : nn::Role::vector;
  bool decays = shape.rank == 2;
  bool joins_previous = false;
  bool adapter = false;
};

/// A unit's parameters, and whether its backward needs them.
struct UnitParameters {
  std::vector<NamedParameter> parameters;
  bool backward_needs_weights = true;
  std::vector<int> absent = {};  ///< fields of the unit that have no parameter, ascending
};

/// Appends a unit with these fields; `prefix` stands before their names.
void add_unit(std::vector<UnitParameters>& units, std::span<const nn::Parameter> fields, const std::string& prefix,
              bool backward_needs_weights);

/// Returns the parameters of all units of a model, in the order entry, blocks, head. This is the only list of a model's
/// parameters.
template <class Model>
std::vector<UnitParameters> unit_parameters(const Model& model) {
  using Local = typename Model::Local;
  std::vector<UnitParameters> units;
  const auto add = [&]<class Unit>(const Unit& unit, const std::string& prefix, bool backward_needs_weights) {
    add_unit(units, nn::flatten<Unit::template FieldsOf>(unit.parameters()), prefix, backward_needs_weights);
  };
  using Entry = typename Model::Entry;
  add(model.entry(), "", !nn::EntryWithoutWeightsInBackward<Entry, Local, nn::InputOf<typename Model::Batch, Local>>);
  for (int i = 0; i < model.blocks(); ++i)
    nn::visit_kind(model.block(i), [&]<class Block>(const Block& block) {
      add(block, model.prefix(i), !nn::BlockWithoutWeightsInBackward<Block, Local>);
    });
  add(model.head(), "", true);
  return units;
}

/// Returns every parameter of the units once, in order; a shared weight appears where it is first named.
std::vector<NamedParameter> distinct_parameters(std::span<const UnitParameters> units);
/// Returns the number of elements of all distinct parameters.
std::int64_t distinct_elements(std::span<const UnitParameters> units);

/// The same for a model's units.
/// @{
template <class Model>
std::vector<NamedParameter> parameter_list(const Model& model) {
  return distinct_parameters(unit_parameters(model));
}
template <class Model>
std::int64_t parameter_count(const Model& model) {
  return distinct_elements(unit_parameters(model));
}
/// @}

/// Choices about a model's units that do not depend on the strategy. Patterns match whole names, with * and ? as in a
/// shell.
struct Units {
  std::int64_t blocks_per_unit = 1;  ///< blocks whose weights are gathered and reduced together
  std::int64_t merge_below = 0;      ///< a unit with fewer elements joins its neighbour
  bool recompute = false;            ///< blocks save only their input (tessera/fsdp/nn/recomputed.hpp)
  bool offload_inputs = false;       ///< saved block inputs live in host memory (tessera/fsdp/device/offload.hpp)
  bool keep_last_block = true;       ///< the last block's weights stay gathered through the head
  std::vector<std::string> replicated = {};  ///< not sharded: whole on every rank, gradients all-reduced once per step
  /// Not trained: no gradient, no optimizer state, no reduction. In a model with adapters all other parameters are
  /// frozen too.
  std::vector<std::string> frozen = {};

  friend bool operator==(const Units&, const Units&) = default;
};

/// Whether any of the shell patterns matches the name.
bool matches_any(const std::vector<std::string>& patterns, const std::string& name);

/// Returns a unit's name for messages: "embedding", "block 3", "head".
std::string unit_name(int unit, int units);

/// Tensors that are gathered and reduced together.
struct GroupedParameters {
  std::string name;  ///< for messages
  std::vector<NamedParameter> parameters;
  bool replicated = false;
  bool frozen = false;
  bool persistent = false;  ///< small tensors: once gathered, they are held to the end of the step

  /// Elements of all its tensors, without padding.
  std::int64_t elements() const;
};

/// A unit's parameter as a group and an index into that group's tensors.
struct Reference {
  int group = 0;  ///< below 0: the unit has no such parameter
  int index = 0;

  /// Whether the unit has such a parameter.
  bool present() const { return group >= 0; }
};

/// The result of group_parameters.
struct UnitGroups {
  std::vector<GroupedParameters> groups;
  std::vector<sharding::UnitUse> uses;             // [units]
  std::vector<std::vector<Reference>> references;  // [units][fields of the unit]
};

/// Puts the parameters of an entry, blocks and a head into groups. First comes one group per unit, in order (units may
/// be merged, as `choices` say); then one for each weight that different units share; then those parts of units that
/// are replicated, frozen or persistent unlike the rest. Tensors of at most `persistence_threshold` elements are
/// persistent. Throws InputError if a number of `choices` is out of range, a pattern matches nothing, or everything is
/// frozen.
UnitGroups group_parameters(std::span<const UnitParameters> units, const Units& choices,
                            std::int64_t persistence_threshold);

/// Returns what a schedule must know about a group. `sharded`: whether the strategy shards groups that are not
/// replicated.
sharding::GroupFacts facts_of(const GroupedParameters& group, const sharding::Facts& facts, bool sharded);

}  // namespace fsdp

// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's list of units, and how it is turned into groups of tensors that are gathered and reduced together.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <fsdp/core/tensor.hpp>
#include <fsdp/nn/module.hpp>
#include <fsdp/sharding/problem.hpp>
#include <fsdp/sharding/rules.hpp>

namespace fsdp {

/// A parameter of a model: its checkpoint name, global shape and beginning.
struct NamedParameter {
  std::string name;
  Shape shape;
  nn::Initial initial = nn::Initial::normal;
};

/// Choices about a model's units, whatever the strategy. Patterns are whole names with * and ?, as in a shell.
struct Units {
  std::int64_t blocks_per_unit = 1;          ///< blocks whose weights are gathered and reduced together
  std::int64_t merge_below = 0;              ///< a unit of fewer elements joins its neighbour
  bool recompute = false;                    ///< blocks save their input alone (nn/recomputed.hpp)
  bool offload_inputs = false;               ///< what recomputed blocks save lives in host memory (device/offload.hpp)
  bool keep_last_block = true;               ///< the last block's weights stay through the head
  std::vector<std::string> replicated = {};  ///< not sharded: whole on every rank, gradients all-reduced once a step
  std::vector<std::string> frozen = {};      ///< not trained: no gradient, no optimizer state, no reduction

  friend bool operator==(const Units&, const Units&) = default;
};

/// Whether a shell pattern matches the name.
bool matches_any(const std::vector<std::string>& patterns, const std::string& name);

/// A unit as people call it: "embedding", "block 3", "head".
std::string unit_name(int unit, int units);

/// Tensors that go together.
struct GroupedParameters {
  std::string name;  ///< for people
  std::vector<NamedParameter> parameters;
  bool replicated = false;
  bool frozen = false;
  bool persistent = false;  ///< small tensors, held through a step once gathered

  std::int64_t elements() const;
};

/// Which tensor of which group a unit's parameter is.
struct Reference {
  int group = 0;
  int index = 0;
};

struct UnitGroups {
  std::vector<GroupedParameters> groups;
  std::vector<sharding::UnitUse> uses;             // [units]
  std::vector<std::vector<Reference>> references;  // [units][parameters of the unit]
};

/// Cuts the parameters of an embedding, equal blocks and a head into groups: one for each unit first, in order; then
/// one for each weight that units far apart share; then the parts of units that are treated apart. Tensors up to
/// `persistence_threshold` elements are persistent. Throws InputError where a number makes no sense, a pattern matches
/// nothing, or everything is frozen.
UnitGroups group_parameters(std::span<const std::vector<NamedParameter>> units, const Units& choices,
                            std::int64_t persistence_threshold);

/// What a schedule must know of a group; `sharded`: whether the strategy shards what is not replicated.
sharding::GroupFacts facts_of(const GroupedParameters& group, const sharding::Facts& facts, bool sharded);

}  // namespace fsdp

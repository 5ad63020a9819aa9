// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tensors of a group and their layout over ranks: the part of ParameterGroup that does not depend on a stack's
/// types.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/core/parameter.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/sharding/problem.hpp>

namespace fsdp {

/// The stack-independent base of ParameterGroup.
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

/// Returns the name of the first trained parameter of which some rank steps only a part; empty if every parameter is
/// stepped whole. `across`: whether optimizer state is sharded over the outer axis.
std::string first_cut(GroupList groups, bool across);

/// Returns the groups in the form that layout policies take; `work` is the cost of an optimizer's step, and `aligned`
/// is as in TensorGroup.
std::vector<buffer::TensorGroup> specs_of(std::span<const GroupedParameters> groups, StepWork work, bool aligned);

/// A part of a parameter that this rank holds; the views are into the buffers at rest.
template <class Main, class Compute, class Accumulate>
struct ParameterShard {
  const Parameter* parameter = nullptr;
  int group = 0;           ///< index of its group
  std::int64_t begin = 0;  ///< index of its first element in the whole tensor
  Tensor<Main> main;       ///< empty if the shard is frozen and main weights would be a separate copy
  Tensor<Compute> model;   ///< the same memory as `main` if there is one copy of the weights
  Tensor<const Accumulate> gradient;
  /// Index of its first element among this rank's trained elements, and so into optimizer state.
  std::int64_t resting = 0;
  bool trainable = true;
  /// One of the ranks that hold replicas of a shard owns it: it writes the shard to files and counts it in norms.
  bool owned = true;

  /// Whether the shard has main weights.
  bool has_main() const { return main.data() != nullptr; }
  /// Returns the number of elements of the shard.
  std::int64_t count() const { return model.numel(); }
};

}  // namespace fsdp

// Compiled into the library.
FSDP_LIST(const fsdp::GroupTensors*)
FSDP_LIST(fsdp::ParameterShard<float, float, float>)
FSDP_LIST(fsdp::ParameterShard<float, fsdp::bf16, float>)

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tensors of a group and how they are laid out over ranks: the part of ParameterGroup that does not depend on a
/// stack's types.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
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
  /// `layout` is over the ranks of the group's axes; `kept`, which may be empty, over the ranks that keep weights after
  /// forward.
  GroupTensors(std::vector<Parameter> parameters, const sharding::GroupFacts& facts, buffer::Layout layout,
               buffer::Layout kept);
  GroupTensors(GroupTensors&&) noexcept;
  ~GroupTensors();

  /// The group's tensors, their layout, and what a schedule must know about it.
  /// @{
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const buffer::Layout& layout() const { return *layout_; }
  const sharding::GroupFacts& facts() const { return facts_; }
  /// @}

  /// Returns the elements that a rank of the world keeps after forward, if k ranks together keep the weights; else 0.
  std::int64_t kept_size_of(int rank) const;

  /// Returns a hash of its layouts, by which ranks compare them.
  std::uint64_t digest_of_layouts() const;

 protected:
  std::vector<Parameter> parameters_;
  std::unique_ptr<const buffer::Layout> layout_, kept_layout_;
  sharding::GroupFacts facts_;
  std::unique_ptr<bool[]> written_;  ///< [parameters]: whether their gradients were written
};

/// The groups of a module, in order.
using GroupList = std::span<const GroupTensors* const>;

/// Returns three counts of elements of a rank of the world: trained ones at rest, all at rest, and those that it keeps
/// after forward.
std::array<std::int64_t, 3> elements_of(GroupList groups, int rank);

/// Returns the name of the first trained parameter that some rank steps only in part; empty if there is none. `across`:
/// whether optimizer state is sharded over the outer axis.
std::string first_cut(GroupList groups, bool across);

/// Returns the parameter of this name. Throws InputError if there is none.
const Parameter& parameter_named(GroupList groups, std::string_view name);

/// Returns the groups as layout policies see them; `work` is the cost of an optimizer's step, `aligned` as in
/// TensorGroup.
std::vector<buffer::TensorGroup> specs_of(std::span<const GroupedParameters> groups, StepWork work, bool aligned);

/// A part of a parameter that this rank holds; the views are into the buffers at rest.
template <class Main, class Compute, class Accumulate>
struct ParameterShard {
  const Parameter* parameter = nullptr;
  int group = 0;           ///< index of its group
  std::int64_t begin = 0;  ///< first element, in the whole tensor
  Tensor<Main> main;       ///< empty if the shard is frozen and main weights would be a separate copy
  Tensor<Compute> model;   ///< the same memory as `main` if there is one copy of the weights
  Tensor<const Accumulate> gradient;
  std::int64_t resting = 0;  ///< its first element among all trained ones of this rank: index into optimizer state
  bool trainable = true;
  bool owned = true;  ///< one rank among replicas owns a shard: it writes it to files and counts it in norms

  /// Whether the shard has main weights.
  bool has_main() const { return main.data() != nullptr; }
  /// Elements of the shard.
  std::int64_t count() const { return model.numel(); }
};

}  // namespace fsdp

// Compiled into the library.
FSDP_LIST(const fsdp::GroupTensors*)
FSDP_LIST(fsdp::ParameterShard<float, float, float>)
FSDP_LIST(fsdp::ParameterShard<float, fsdp::bf16, float>)

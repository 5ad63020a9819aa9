// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tensors of a group, and which rank holds which of them: what does not depend on the types of a stack.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fsdp/buffer/layout.hpp>
#include <fsdp/module/run_shape.hpp>
#include <fsdp/module/units.hpp>
#include <fsdp/sharding/problem.hpp>

namespace fsdp {

/// A base of ParameterGroup.
class GroupTensors {
 public:
  /// `layout` is cut over the axes; `kept`, which may be empty, over the ranks that keep weights after forward.
  GroupTensors(std::vector<NamedParameter> parameters, const sharding::GroupFacts& facts, buffer::Layout layout,
               buffer::Layout kept);
  GroupTensors(GroupTensors&&) noexcept;
  ~GroupTensors();

  /// What the group was made of, and what its schedule must know.
  /// @{
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  const buffer::Layout& layout() const { return *layout_; }
  const sharding::GroupFacts& facts() const { return facts_; }
  /// @}

  /// Elements that a rank of the world keeps after forward, of k ranks that keep the weights together; else 0.
  std::int64_t kept_size_of(int rank) const;

 protected:
  std::vector<NamedParameter> parameters_;
  std::unique_ptr<const buffer::Layout> layout_, kept_layout_;
  sharding::GroupFacts facts_;
  std::unique_ptr<bool[]> written_;  ///< [parameters]: whether their gradients were written to
};

/// Groups of a module, in their order.
using GroupList = std::span<const GroupTensors* const>;
/// Adds a group, which must outlive the list.
void append(std::vector<const GroupTensors*>& list, const GroupTensors& group);

/// Elements that a rank of the world holds at rest: those that are trained, all, and those that it keeps after
/// forward.
std::array<std::int64_t, 3> elements_of(GroupList groups, int rank);

/// The first trained parameter of which some rank steps a part alone; empty where there is none. `across`: whether the
/// outer axis cuts what is stepped.
std::string first_cut(GroupList groups, bool across);

/// Groups as layout policies see them; `work` is of a step.
std::vector<buffer::TensorGroup> specs_of(std::span<const GroupedParameters> groups, StepWork work);

}  // namespace fsdp

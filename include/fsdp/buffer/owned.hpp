// SPDX-License-Identifier: Apache-2.0
/// @file
/// The layout that splits no tensor: each tensor is stored in full on one rank, its owner.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <tessera/fsdp/buffer/layout.hpp>

namespace fsdp::buffer {

/// Assigns the tensors of all groups to ranks, so that the work of optimizer steps of whole tensors is about equal on
/// all ranks. In a group's full buffer the tensors of rank 0 come first, then the tensors of rank 1, and so on, so that
/// the group needs one gather and one reduction, with counts that differ by rank. A rank's buffer contains only its own
/// tensors.
///
/// Joined tensors (TensorSpec::joins_previous) have one owner, are adjacent in its buffer, and count as one tensor
/// below. Tensors are assigned in the order of decreasing work. Each is assigned to the rank with the least work so
/// far, among the ranks that stay within mean * (1 + slack) elements, where `mean` is the number of all elements /
/// ranks. If there is no such rank, or the tensor has no work, it is assigned to the rank with the fewest elements.
///
/// Bound: no rank stores more than mean + max(slack * mean, largest tensor) elements, with tensors rounded up to 64,
/// because the rank with the fewest elements has at most `mean` before an assignment. If the limit on elements is never
/// reached, as with work = elements, the largest work of a rank is at most 4/3 of the optimum. Source: longest
/// processing time first, Graham 1969.
struct Owned {
  static constexpr std::string_view name = "owned";
  static constexpr bool keeps_tensors_whole = true;
  double slack = 0.25;  ///< fraction by which a rank's elements may exceed the mean, to equalise work

  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const;
};

static_assert(LayoutPolicy<Owned> && keeps_tensors_whole<Owned>);

}  // namespace fsdp::buffer

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The layout that cuts no tensor: one rank, its owner, holds all of it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <tessera/fsdp/buffer/layout.hpp>

namespace fsdp::buffer {

/// Assigns the tensors of all groups to ranks, so that the ranks' optimizer steps of whole tensors have about equal
/// work. In a group's full buffer the tensors of rank 0 come first, then those of rank 1, and so on: the group needs
/// one gather and one reduction, with counts that differ by rank. A rank's buffer holds only its own tensors.
///
/// Joined tensors (TensorSpec::joins_previous) have one owner, lie side by side there, and count as one tensor below.
/// Tensors are assigned in the order of decreasing work. Each goes to the rank with the least work so far, among the
/// ranks that stay within mean * (1 + slack) elements, where `mean` is all elements / ranks. If there is no such rank,
/// or the tensor has no work, it goes to the rank with the fewest elements.
///
/// Bound: no rank holds more than mean + max(slack * mean, largest tensor) elements, tensors rounded up to 64, because
/// the rank with the fewest elements has at most `mean` before. If the limit on elements never binds, as with
/// work = elements, the largest work of a rank is at most 4/3 of the optimum. Source: longest processing time first,
/// Graham 1969.
struct Owned {
  static constexpr std::string_view name = "owned";
  static constexpr bool keeps_tensors_whole = true;
  double slack = 0.25;  ///< fraction by which a rank's elements may exceed the mean, to equalise work

  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const;
};

static_assert(LayoutPolicy<Owned> && keeps_tensors_whole<Owned>);

}  // namespace fsdp::buffer

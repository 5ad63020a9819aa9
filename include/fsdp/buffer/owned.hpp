// SPDX-License-Identifier: Apache-2.0
/// @file
/// The layout that cuts no tensor: each lies whole on one rank, its owner.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <fsdp/buffer/layout.hpp>

namespace fsdp::buffer {

/// Assigns the tensors of all groups to ranks, so that each rank steps whole tensors of about equal work. In a group's
/// full buffer the tensors of rank 0 come first, then those of rank 1, and so on: one gather and one reduction serve
/// the group, with counts that differ by rank. A rank's buffer holds its own tensors and nothing else.
///
/// Tensors that join each other have one owner, where they stand side by side: in what follows they are one tensor.
/// Tensors are taken in the order of falling work. Each goes to the rank with the least work so far among those that it
/// would not bring above mean * (1 + slack) elements, where `mean` is all elements / ranks; where there is none, and
/// where a tensor has no work, it goes to the rank with the fewest elements.
///
/// Bound: no rank holds more than mean + max(slack * mean, largest tensor) elements, tensors rounded up to 64. A rank
/// that is taken as the one with the fewest elements has at most `mean` before. Where the limit on elements never
/// binds, as with work = elements, the most work of a rank is at most 4/3 of what is possible. Source: longest
/// processing time first, Graham 1969.
struct Owned {
  static constexpr std::string_view name = "owned";
  static constexpr bool keeps_tensors_whole = true;
  double slack = 0.25;  ///< part of the mean that a rank's elements may exceed it by, for the sake of equal work

  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const;
};

static_assert(LayoutPolicy<Owned> && keeps_tensors_whole<Owned>);

}  // namespace fsdp::buffer

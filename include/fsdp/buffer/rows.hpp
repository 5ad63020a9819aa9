// SPDX-License-Identifier: Apache-2.0
/// @file
/// The layout that splits no row: one flat buffer, the same for every placement and dtype.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <tessera/fsdp/buffer/layout.hpp>

namespace fsdp::buffer {

/// Divides the group, as one range, only between rows, so that each row is stored on one rank (for block quantisation
/// or row-wise optimizers). A row is one index of a tensor's first axis; an empty tensor has no rows.
///
/// Let the chunk be the least common multiple of all row lengths. If it is at most twice the longest row, every cut is
/// at a multiple of the chunk and all parts are equal, as in Megatron's DBuffer; the padding is less than two longest
/// rows per tensor and per rank. If the multiple is larger (rows of 1024 and 50257), tensors follow each other without
/// padding, and each cut is at the last row border before the end of an equal part: parts differ by less than two
/// longest rows, and every rank's buffer has room for the largest part. Groups that are `aligned` (TensorGroup) are cut
/// in this way too, with each tensor at a multiple of element_alignment.
struct Rows {
  static constexpr std::string_view name = "rows";

  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const {
    require_rows(groups);
    return group_by_group(groups, parts, !groups.empty() && groups.front().aligned ? of_aligned_group : of_group);
  }
  /// Throws InputError, which reports the tensor's name, for a tensor without axes.
  static void require_rows(std::span<const TensorGroup> groups);
  /// Returns the layout of one group over `ranks` ranks. Throws LogicError for a tensor of rank 0.
  static Layout of_group(std::span<const Shape> shapes, int ranks);
  /// The same for a group that is `aligned`.
  static Layout of_aligned_group(std::span<const Shape> shapes, int ranks);
};

static_assert(LayoutPolicy<Rows>);

}  // namespace fsdp::buffer

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The layout that splits no row: one flat buffer, the same for every placement and dtype.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <fsdp/buffer/layout.hpp>

namespace fsdp::buffer {

/// One range over the group, cut between rows only, so that each row lies whole on one rank (for block quantisation or
/// row-wise optimizers). A row is everything behind a tensor's first axis; an empty tensor has none.
///
/// Where the least common multiple of all row lengths, the chunk, is at most twice the longest row, every cut falls on
/// a multiple of the chunk and all parts are equal: Megatron's DBuffer. Its padding is less than two of the longest row
/// for each tensor and each rank. Where the multiple explodes (rows of 1024 beside 50257), tensors stand one after the
/// other without padding, and each cut is the last border of rows before an equal part's end: parts differ by less than
/// two of the longest row, and every rank's buffer has room for the largest.
struct Rows {
  static constexpr std::string_view name = "rows";

  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const {
    return group_by_group(groups, parts, of_group);
  }
  /// Of one group, over `ranks`.
  static Layout of_group(std::span<const Shape> shapes, int ranks);
};

static_assert(LayoutPolicy<Rows>);

}  // namespace fsdp::buffer

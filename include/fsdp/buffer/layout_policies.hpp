// SPDX-License-Identifier: Apache-2.0
/// @file
/// Layout policies that split no row (Rows) and no tensor (Owned), and a layout policy that is chosen at run time.
#pragma once

#include <concepts>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
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
  static constexpr double usual_slack = 0.25;  ///< the default
  double slack = usual_slack;  ///< fraction by which a rank's elements may exceed the mean, to equalise work

  std::string text() const;  ///< the name, and the slack unless it is the usual one

  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const;
};

static_assert(LayoutPolicy<Owned> && keeps_tensors_whole<Owned>);

/// Contains one of this library's layout policies, with its parameters.
class AnyLayout {
 public:
  static constexpr std::string_view name = "any";

  AnyLayout() = default;
  /// Takes a copy of `policy`.
  template <class L>
  requires(std::constructible_from<std::variant<PerParameter, Flat, Rows, Owned>, L>&& LayoutPolicy<L>)
      AnyLayout(L policy)
      : policy_(std::move(policy)) {}

  std::string text() const;  ///< the name of the contained policy
  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const;

 private:
  std::variant<PerParameter, Flat, Rows, Owned> policy_;
};

static_assert(LayoutPolicy<AnyLayout> && !keeps_tensors_whole<AnyLayout>);

}  // namespace fsdp::buffer

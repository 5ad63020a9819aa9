// SPDX-License-Identifier: Apache-2.0
/// @file
/// Layout policies that split no block (Blocks), no row (Rows) and no tensor (Owned), and a layout policy that is
/// chosen at run time. All three choose a table of borders (cut_at), and Owned also the order of a group's tensors. To
/// place borders by hand, write a policy whose `build` calls lay_out and cut_at with your own.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/fsdp/buffer/layout.hpp>

namespace fsdp::buffer {

/// Divides each group, as one range in the order of its tensors, at multiples of blocks, counted from each tensor's
/// first element. A tensor's block is the one that it states (TensorSpec::block: Parameter::block, the optimizer's, or
/// whole blocks of both). For other tensors it is `elements` consecutive elements, of which the last block of a tensor
/// may have fewer, or a row, that is, one index of the first axis.
///
/// Groups are divided one after the other, larger ones first. Each is given to the ranks with the fewest elements so
/// far, up to a common level, with each border at the nearest multiple of a block. So no rank stores more than the mean
/// over ranks + the largest block + 128 elements, padding included, and a rank may store nothing of a group: 2 heads on
/// 4 ranks. Where the parts of ranks are divided over the outer axis of a mesh too (cut_across), no rank of K replicas
/// stores more than the mean over all ranks + (1 + 1/K) * (the largest block + 128) elements.
///
/// Padding: each tensor in the full buffer, and each rank's part of a group, to a multiple of 64 elements. Ranks'
/// parts are not padded to a common size.
struct Blocks {
  static constexpr std::string_view name = "blocks";
  static constexpr bool keeps_tensors_whole = true;
  static constexpr bool keeps_whole_across = true;
  std::int64_t elements = 0;  ///< block of a tensor that states none; 0 for a row

  std::string text() const;  ///< the name, and `elements` unless they are 0

  /// Throws InputError for a negative number of elements.
  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const;
};

static_assert(LayoutPolicy<Blocks> && keeps_tensors_whole<Blocks>);

/// Blocks where each block is a row, whatever tensors state, so that each row is stored on one rank.
struct Rows {
  static constexpr std::string_view name = "rows";

  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const;
};

static_assert(LayoutPolicy<Rows> && !keeps_tensors_whole<Rows>);

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
  requires(std::constructible_from<std::variant<PerParameter, Flat, Rows, Owned, Blocks>, L>&& LayoutPolicy<L>)
      AnyLayout(L policy)
      : policy_(std::move(policy)) {}

  std::string text() const;  ///< the name of the contained policy
  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const;

 private:
  std::variant<PerParameter, Flat, Rows, Owned, Blocks> policy_;
};

static_assert(LayoutPolicy<AnyLayout> && !keeps_tensors_whole<AnyLayout>);

}  // namespace fsdp::buffer

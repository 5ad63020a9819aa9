// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which element of a group of tensors is whose: the layouts.
///
/// A layout places every tensor of a group in one full buffer and says which parts of it each rank holds. It depends on
/// shapes, work and the number of ranks alone, so every rank computes the same one, for every dtype. To add a layout
/// policy: a struct with `build` (LayoutPolicy), its cases in tests/buffer/layout_test.cpp, and for the program its
/// place in any_layout.hpp.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <fsdp/core/tensor.hpp>

namespace fsdp::buffer {

/// Every tensor starts at a multiple of this many elements: 64-byte alignment down to one-byte elements.
inline constexpr std::int64_t element_alignment = 64;

/// A range of the full buffer that is divided over the ranks in rank order; one segment of a collective.
struct Run {
  std::int64_t full = 0;             ///< where it starts in the full buffer
  std::int64_t local = 0;            ///< where this rank's part of it starts in the local buffer
  std::vector<std::int64_t> counts;  ///< elements of each rank; may differ, may be 0

  /// Where `rank`'s part starts in the full buffer.
  std::int64_t begin(int rank) const;
  friend bool operator==(const Run&, const Run&) = default;
};

/// Elements [begin, begin + count) of tensor `tensor`, held at `local` of a rank's buffer.
struct Piece {
  std::int64_t tensor = 0;
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t local = 0;
  friend constexpr bool operator==(const Piece&, const Piece&) = default;
};

/// Where each tensor of a group starts, and which elements each rank holds.
struct Layout {
  std::vector<Shape> shapes;
  std::vector<std::int64_t> offsets;  ///< where each tensor starts in the full buffer
  std::vector<Run> runs;
  std::int64_t full_size = 0;             ///< elements, padding included
  std::vector<std::int64_t> local_sizes;  ///< elements of each rank's buffer, padding included; may differ, may be 0
  /// Equal parts of each rank's buffer, over a mesh's outer axis; one for all where their sizes are equal. Set by
  /// cut_across.
  std::vector<Run> across;

  /// Elements of a rank's buffer, padding included.
  std::int64_t local_size(int rank) const { return local_sizes[static_cast<std::size_t>(rank)]; }

  /// What `rank` holds, in the order of the local buffer.
  std::vector<Piece> pieces(int rank) const;
  /// Every tensor whole, as a buffer that is not cut holds them.
  std::vector<Piece> whole() const;

  /// The parts of `shard`'s buffer over the outer axis; see cut_across.
  const Run& across_of(int shard) const { return across[across.size() == 1 ? 0 : static_cast<std::size_t>(shard)]; }
  /// Elements of one of those parts.
  std::int64_t across_size(int shard) const { return across_of(shard).counts.front(); }

  /// What rank (shard, replica) of a mesh holds of it then, in the order of its buffer.
  std::vector<Piece> pieces_across(int shard, int replica) const;

  /// Cuts every local buffer into equal parts over `ranks`, padding it where they do not divide it.
  void cut_across(int ranks);
};

/// A tensor as layout policies see it.
struct TensorSpec {
  Shape shape;
  std::int64_t work = 0;  ///< cost of stepping the tensor whole, in any unit: an optimizer's; 0 where it is frozen
  /// Whether it is used together with the tensor before it: layouts that choose an order keep them beside each other.
  /// What is multiplied as one matrix under one layout and as two under another does not give the same bits.
  bool joins_previous = false;
};

/// Tensors that are gathered and reduced together.
struct TensorGroup {
  std::vector<TensorSpec> tensors;
};

/// A layout policy: a value whose `build(groups, parts)` gives the layout of each group over `parts` ranks. It sees all
/// groups of a model that are cut over the same ranks, and gives the same answer on all of them.
template <class L>
concept LayoutPolicy = std::copyable<L> && requires(const L layout, std::span<const TensorGroup> groups, int parts) {
  { layout.build(groups, parts) } -> std::same_as<std::vector<Layout>>;
  { L::name } -> std::convertible_to<std::string_view>;
};

/// Whether a layout policy never cuts a tensor: unless it says so, it may.
template <class L>
inline constexpr bool keeps_tensors_whole = false;
template <class L>
requires requires { L::keeps_tensors_whole; }
inline constexpr bool keeps_tensors_whole<L> = L::keeps_tensors_whole;

/// Layouts of groups that a policy lays out one by one, each over `parts` ranks.
std::vector<Layout> group_by_group(std::span<const TensorGroup> groups, int parts,
                                   Layout (*of_group)(std::span<const Shape> shapes, int parts));

namespace detail {

/// `build` of the policy that `policy` points to.
using Build = std::vector<Layout> (*)(const void* policy, std::span<const TensorGroup> groups, int parts);

std::vector<Layout> build_layouts(std::string_view name, const void* policy, Build build,
                                  std::span<const TensorGroup> groups, std::span<const int> parts);

}  // namespace detail

/// Layouts of groups of which each is cut over parts[i] ranks; of none where that is 0. The policy sees together those
/// that are cut over equally many.
template <LayoutPolicy L>
std::vector<Layout> build_layouts(const L& policy, std::span<const TensorGroup> groups, std::span<const int> parts) {
  const detail::Build build = [](const void* held, std::span<const TensorGroup> together, int ranks) {
    return static_cast<const L*>(held)->build(together, ranks);
  };
  return detail::build_layouts(L::name, &policy, build, groups, parts);
}

/// Places tensors one after the other, aligned; what all layouts of whole tensors share.
Layout place(std::span<const Shape> shapes);

/// Cuts the full buffer, whose size `parts` divides, into one equal range for each rank.
void cut_equally(Layout& layout, int parts);

/// Each tensor cut along its first axis into chunks of ceil(rows / ranks); trailing ranks may have short or empty
/// chunks. Every rank's buffer has room for a whole chunk. Source: FSDP2 (torch.chunk).
struct PerParameter {
  static constexpr std::string_view name = "per-parameter";

  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const {
    return group_by_group(groups, parts, of_group);
  }
  /// Of one group, over `parts` ranks.
  static Layout of_group(std::span<const Shape> shapes, int parts);
};

/// The whole group as one range, cut into equal parts wherever the cuts fall. Source: FSDP1's flat parameter.
struct Flat {
  static constexpr std::string_view name = "flat";

  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const {
    return group_by_group(groups, parts, of_group);
  }
  /// Of one group, over `parts` ranks.
  static Layout of_group(std::span<const Shape> shapes, int parts);
};

static_assert(LayoutPolicy<PerParameter> && LayoutPolicy<Flat>);

}  // namespace fsdp::buffer

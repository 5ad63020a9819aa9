// SPDX-License-Identifier: Apache-2.0
/// @file
/// Layouts: the distribution of a group's tensors over ranks; and placements, the distribution of a buffer over an axis
/// of a mesh.
///
/// A layout places all tensors of a group in one full buffer and divides that buffer over the ranks. It depends only on
/// shapes, work and the number of ranks, so that every rank computes the same layout for every dtype. To add a layout
/// policy, add a struct with `build` (LayoutPolicy), its cases in tests/buffer/layout_test.cpp and, for the program, an
/// alternative of AnyLayout in layout_policies.hpp.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/core/tensor.hpp>

namespace fsdp::buffer {

struct Shard {};      ///< each rank stores its own ranges
struct Replicate {};  ///< each rank stores all elements
struct Partial {};    ///< each rank stores a summand of all elements; the value is the sum over ranks

/// The distribution of a tensor's elements over one axis of a mesh.
template <class P>
concept Placement = std::is_same_v<P, Shard> || std::is_same_v<P, Replicate> || std::is_same_v<P, Partial>;

/// Every tensor starts at a multiple of this many elements, which aligns it to 64 bytes even with one-byte elements.
inline constexpr std::int64_t element_alignment = 64;

/// A range of the full buffer that is divided over the ranks in rank order; one segment of a collective.
struct Run {
  std::int64_t full = 0;             ///< offset of the run in the full buffer
  std::int64_t local = 0;            ///< offset of this rank's part of the run in the local buffer
  std::vector<std::int64_t> counts;  ///< number of elements of each rank; may differ, may be 0

  /// Returns the offset of `rank`'s part in the full buffer.
  std::int64_t begin(int rank) const;
  friend bool operator==(const Run&, const Run&) = default;
};

/// Elements [begin, begin + count) of tensor `tensor`, stored at offset `local` of a rank's buffer.
struct TensorRange {
  std::int64_t tensor = 0;  ///< index of the tensor in the group
  std::int64_t begin = 0;   ///< index of the first element in the tensor
  std::int64_t count = 0;   ///< number of elements
  std::int64_t local = 0;   ///< offset of the range in the rank's buffer
  friend constexpr bool operator==(const TensorRange&, const TensorRange&) = default;
};

/// The layout of a group: the offset of each tensor, and the elements of each rank.
struct Layout {
  std::vector<Shape> shapes;          ///< shapes of the tensors, in the group's order
  std::vector<std::int64_t> offsets;  ///< offset of each tensor in the full buffer
  std::vector<Run> runs;              ///< division of the full buffer over the ranks
  std::int64_t full_size = 0;         ///< number of elements of the full buffer, padding included
  /// Number of elements of each tensor's block: ranks are divided at multiples of it, counted from the tensor's first
  /// element. Empty if tensors may be cut anywhere.
  std::vector<std::int64_t> blocks;
  /// Number of elements of each rank's buffer, padding included; may differ, may be 0.
  std::vector<std::int64_t> local_sizes;
  /// The division of each rank's buffer over a mesh's outer axis. One Run per shard, or a single one if all shards are
  /// divided equally. Set by cut_across.
  std::vector<Run> across;

  /// Returns the number of elements of a rank's buffer, padding included.
  std::int64_t local_size(int rank) const { return local_sizes[static_cast<std::size_t>(rank)]; }

  /// Returns the ranges in the buffer of `rank`, in the order of the buffer.
  std::vector<TensorRange> ranges(int rank) const;
  /// Returns every tensor as one range, as in an unsharded buffer, in the order of the group.
  std::vector<TensorRange> whole() const;

  /// Returns the division of `shard`'s buffer over the outer axis; see cut_across.
  const Run& across_of(int shard) const { return across[across.size() == 1 ? 0 : static_cast<std::size_t>(shard)]; }
  /// Returns the number of elements of the part of rank (shard, replica) in that division.
  std::int64_t across_size(int shard, int replica) const {
    return across_of(shard).counts[static_cast<std::size_t>(replica)];
  }

  /// Returns the ranges in the buffer of rank (shard, replica) of a mesh after cut_across, in the order of the buffer.
  std::vector<TensorRange> ranges_across(int shard, int replica) const;

  /// Returns the borders that divide a buffer of `size` elements over ranks that store `held` elements so far: the
  /// buffer is given to the ranks with the fewest, up to a common level, with each border at the nearest position at
  /// which `blocks` allow a cut. `ranges` are the buffer's, in its order. The first border is 0, the last is `size`.
  std::vector<std::int64_t> cut_to_level(std::span<const std::int64_t> held, std::span<const TensorRange> ranges,
                                         std::int64_t size) const;
};

/// Divides every local buffer of layout i over the ranks[i] ranks of the outer axis. A layout without `blocks` is
/// divided into equal parts, with padding if needed. The layouts with `blocks` and the same axes are divided together,
/// larger ones first, each by cut_to_level: so no rank stores more of them than the mean over the replicas of its shard
/// + the largest block + 64 elements, padding included.
void cut_across(std::span<Layout> layouts, std::span<const int> ranks);

/// A tensor's properties that layout policies use.
struct TensorSpec {
  Shape shape;            ///< shape of the whole tensor
  std::int64_t work = 0;  ///< cost of an optimizer step of the whole tensor, in any unit; 0 if frozen
  /// Whether modules use this tensor together with the previous one. Layouts that reorder tensors keep the two
  /// adjacent, since one matmul over both and two separate matmuls are not bit-identical.
  bool joins_previous = false;
  std::string_view name = {};  ///< name for messages; valid during the call
  /// Number of consecutive elements, counted from the first, that should be on one rank; 0 if none is stated.
  std::int64_t block = 0;
};

/// A group of tensors that are gathered and reduced together.
struct TensorGroup {
  std::vector<TensorSpec> tensors;  ///< tensors in the order of Layout::shapes
  /// Whether results must not depend on the layout, since steps are divided into pieces. Every tensor then starts at a
  /// multiple of element_alignment, and a tensor with joins_previous starts at the first such multiple after the
  /// previous tensor.
  bool aligned = false;
};

/// A layout policy: a value whose `build(groups, parts)` returns the layout of each group over `parts` ranks. It
/// receives all groups of a model that are sharded over the same number of ranks, and must return the same layouts on
/// all ranks, which compare them. Each element of a tensor belongs to one rank; tensors need not be adjacent.
template <class L>
concept LayoutPolicy = std::copyable<L> && requires(const L layout, std::span<const TensorGroup> groups, int parts) {
  { layout.build(groups, parts) } -> std::same_as<std::vector<Layout>>;
  { L::name } -> std::convertible_to<std::string_view>;
};

/// Whether a layout policy never splits a tensor whose block (TensorSpec) is the whole tensor: its static member
/// `keeps_tensors_whole`, default false.
template <class L>
inline constexpr bool keeps_tensors_whole = false;
template <class L>
requires requires { L::keeps_tensors_whole; }
inline constexpr bool keeps_tensors_whole<L> = L::keeps_tensors_whole;

/// Whether cut_across does not split such a tensor either, because the layouts have `blocks`: the policy's static
/// member `keeps_whole_across`, default false.
template <class L>
inline constexpr bool keeps_whole_across = false;
template <class L>
requires requires { L::keeps_whole_across; }
inline constexpr bool keeps_whole_across<L> = L::keeps_whole_across;

/// Applies `of_group` to each group. For policies that lay out each group separately.
std::vector<Layout> group_by_group(std::span<const TensorGroup> groups, int parts,
                                   Layout (*of_group)(std::span<const Shape> shapes, int parts));

namespace detail {

/// Calls `build` of the policy that `policy` points to.
using Build = std::vector<Layout> (*)(const void* policy, std::span<const TensorGroup> groups, int parts);

std::vector<Layout> build_layouts(std::string_view name, const void* policy, Build build,
                                  std::span<const TensorGroup> groups, std::span<const int> parts);

}  // namespace detail

/// Returns the layouts of groups. Group i is divided over parts[i] ranks; if parts[i] is 0, its layout is empty. All
/// groups with the same number of parts are passed to the policy in one call. Throws InputError with one sentence for a
/// layout that does not assign each element of a tensor to one rank, has parts outside of their buffers, cuts a block,
/// or misplaces tensors of an `aligned` group.
template <LayoutPolicy L>
std::vector<Layout> build_layouts(const L& policy, std::span<const TensorGroup> groups, std::span<const int> parts) {
  const detail::Build build = [](const void* held, std::span<const TensorGroup> together, int ranks) {
    return static_cast<const L*>(held)->build(together, ranks);
  };
  return detail::build_layouts(L::name, &policy, build, groups, parts);
}

/// Places tensors one after the other in the full buffer, each padded to a multiple of element_alignment.
Layout lay_out(std::span<const Shape> shapes);

/// Divides the full buffer into one equal range per rank. `parts` must divide its size.
void cut_equally(Layout& layout, int parts);

/// Divides the full buffer at the borders of a table: rank r stores elements [borders[r], borders[r + 1]). The first
/// border is 0, the last is full_size. A rank's buffer is padded to a multiple of element_alignment. Throws LogicError
/// for other borders, or for borders that descend.
void cut_at(Layout& layout, std::span<const std::int64_t> borders);

/// Cuts each tensor along its first axis into chunks of ceil(rows / ranks) rows; trailing ranks may have short or empty
/// chunks. Every rank's buffer has room for full chunks. Source: FSDP2 (torch.chunk).
struct PerParameter {
  static constexpr std::string_view name = "per-parameter";

  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const {
    return group_by_group(groups, parts, of_group);
  }
  static Layout of_group(std::span<const Shape> shapes, int parts);  ///< the layout of one group over `parts` ranks
};

/// Divides the concatenated group into equal ranges, without regard to tensor borders. Source: FSDP1's flat parameter.
struct Flat {
  static constexpr std::string_view name = "flat";

  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const {
    return group_by_group(groups, parts, of_group);
  }
  static Layout of_group(std::span<const Shape> shapes, int parts);  ///< the layout of one group over `parts` ranks
};

static_assert(LayoutPolicy<PerParameter> && LayoutPolicy<Flat>);

}  // namespace fsdp::buffer

// Compiled into the library.
FSDP_LIST(fsdp::buffer::Run)
FSDP_LIST(fsdp::buffer::Layout)
FSDP_LIST(fsdp::buffer::TensorRange)
FSDP_LIST(fsdp::buffer::TensorSpec)
FSDP_LIST(fsdp::buffer::TensorGroup)

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which element of a group of tensors is whose: the layouts.
///
/// A layout places every tensor of a group in one full buffer and says which parts of it each rank holds. It depends on
/// shapes, work and the number of ranks alone, so every rank computes the same one, for every dtype. To add a layout
/// policy: a struct with `build` (LayoutPolicy), its cases in tests/buffer/layout_test.cpp, and for the program its
/// place in any_layout.hpp.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fsdp/core/checked.hpp>
#include <fsdp/core/error.hpp>
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
  std::int64_t begin(int rank) const { return std::accumulate(counts.begin(), counts.begin() + rank, full); }
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
  std::vector<Piece> pieces(int rank) const {
    std::vector<Piece> held;
    for (const Run& run : runs) {
      const std::int64_t begin = run.begin(rank);
      const std::int64_t end = begin + run.counts[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        const std::int64_t from = std::max(begin, offsets[i]);
        const std::int64_t to = std::min(end, offsets[i] + shapes[i].numel());
        if (from < to)
          held.push_back({.tensor = static_cast<std::int64_t>(i),
                          .begin = from - offsets[i],
                          .count = to - from,
                          .local = run.local + from - begin});
      }
    }
    return held;
  }

  /// The parts of `shard`'s buffer over the outer axis; see cut_across.
  const Run& across_of(int shard) const { return across[across.size() == 1 ? 0 : static_cast<std::size_t>(shard)]; }
  /// Elements of one of those parts.
  std::int64_t across_size(int shard) const { return across_of(shard).counts.front(); }

  /// What rank (shard, replica) of a mesh holds of it then, in the order of its buffer.
  std::vector<Piece> pieces_across(int shard, int replica) const {
    const std::int64_t begin = across_of(shard).begin(replica);
    const std::int64_t end = begin + across_size(shard);
    std::vector<Piece> held;
    for (const Piece& piece : pieces(shard)) {
      const std::int64_t from = std::max(begin, piece.local);
      const std::int64_t to = std::min(end, piece.local + piece.count);
      if (from < to)
        held.push_back({.tensor = piece.tensor,
                        .begin = piece.begin + from - piece.local,
                        .count = to - from,
                        .local = from - begin});
    }
    return held;
  }

  /// Cuts every local buffer into equal parts over `ranks`, padding it where they do not divide it.
  void cut_across(int ranks) {
    if (ranks > 1)
      for (std::int64_t& size : local_sizes) size = round_up(size, element_alignment * ranks);
    const bool alike =
        std::adjacent_find(local_sizes.begin(), local_sizes.end(), std::not_equal_to<>()) == local_sizes.end();
    across.clear();
    for (std::size_t rank = 0; rank < (alike ? 1 : local_sizes.size()); ++rank) {
      const std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), local_sizes[rank] / ranks);
      across.push_back({.full = 0, .local = 0, .counts = counts});
    }
  }
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

/// Layouts of groups that a policy lays out one by one.
template <class OfGroup>
std::vector<Layout> group_by_group(std::span<const TensorGroup> groups, OfGroup of_group) {
  std::vector<Layout> layouts;
  std::vector<Shape> shapes;
  for (const TensorGroup& group : groups) {
    shapes.clear();
    for (const TensorSpec& tensor : group.tensors) shapes.push_back(tensor.shape);
    layouts.push_back(of_group(std::span<const Shape>(shapes)));
  }
  return layouts;
}

/// Layouts of groups of which each is cut over parts[i] ranks; of none where that is 0. The policy sees together those
/// that are cut over equally many.
template <LayoutPolicy L>
std::vector<Layout> build_layouts(const L& policy, std::span<const TensorGroup> groups, std::span<const int> parts) {
  std::vector<Layout> layouts(groups.size());
  std::vector<int> distinct(parts.begin(), parts.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  for (const int ranks : distinct) {
    if (ranks == 0) continue;
    std::vector<TensorGroup> together;
    for (std::size_t i = 0; i < groups.size(); ++i)
      if (parts[i] == ranks) together.push_back(groups[i]);
    std::vector<Layout> built = policy.build(std::span<const TensorGroup>(together), ranks);
    require(built.size() == together.size(), "layout ", L::name, ": gave ", built.size(), " layouts for ",
            together.size(), " groups");
    auto next = built.begin();
    for (std::size_t i = 0; i < groups.size(); ++i)
      if (parts[i] == ranks) layouts[i] = std::move(*next++);
  }
  return layouts;
}

/// Places tensors one after the other, aligned; what all layouts of whole tensors share.
inline Layout place(std::span<const Shape> shapes) {
  Layout layout;
  layout.shapes.assign(shapes.begin(), shapes.end());
  for (const Shape& shape : shapes) {
    layout.offsets.push_back(layout.full_size);
    layout.full_size = checked_add(layout.full_size, round_up(shape.numel(), element_alignment));
  }
  return layout;
}

/// Cuts the full buffer, whose size `parts` divides, into one equal range for each rank.
inline void cut_equally(Layout& layout, int parts) {
  layout.local_sizes.assign(static_cast<std::size_t>(parts), layout.full_size / parts);
  layout.runs = {{.full = 0, .local = 0, .counts = layout.local_sizes}};
}

/// Each tensor cut along its first axis into chunks of ceil(rows / ranks); trailing ranks may have short or empty
/// chunks. Every rank's buffer has room for a whole chunk. Source: FSDP2 (torch.chunk).
struct PerParameter {
  static constexpr std::string_view name = "per-parameter";

  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const {
    return group_by_group(groups, [parts](std::span<const Shape> shapes) { return of_group(shapes, parts); });
  }

  /// Of one group, over `parts` ranks.
  static Layout of_group(std::span<const Shape> shapes, int parts) {
    Layout layout = place(shapes);
    std::int64_t local_size = 0;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const std::int64_t rows = shapes[i].rank == 0 ? 1 : shapes[i][0];
      const std::int64_t row = rows == 0 ? 0 : shapes[i].numel() / rows;
      const std::int64_t chunk = ceil_divide(rows, parts);
      Run run{.full = layout.offsets[i], .local = local_size, .counts = {}};
      for (int rank = 0; rank < parts; ++rank)
        run.counts.push_back(std::clamp<std::int64_t>(rows - rank * chunk, 0, chunk) * row);
      layout.runs.push_back(std::move(run));
      local_size += round_up(chunk * row, element_alignment);
    }
    layout.local_sizes.assign(static_cast<std::size_t>(parts), local_size);
    return layout;
  }
};

/// The whole group as one range, cut into equal parts wherever the cuts fall. Source: FSDP1's flat parameter.
struct Flat {
  static constexpr std::string_view name = "flat";

  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const {
    return group_by_group(groups, [parts](std::span<const Shape> shapes) { return of_group(shapes, parts); });
  }

  /// Of one group, over `parts` ranks.
  static Layout of_group(std::span<const Shape> shapes, int parts) {
    Layout layout = place(shapes);
    layout.full_size = round_up(layout.full_size, element_alignment * parts);
    cut_equally(layout, parts);
    return layout;
  }
};

static_assert(LayoutPolicy<PerParameter> && LayoutPolicy<Flat>);

}  // namespace fsdp::buffer

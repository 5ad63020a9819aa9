// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which element of a group of tensors is whose: the layouts.
///
/// A layout places every tensor of a group in one full buffer and says which parts of it each rank holds. It depends on
/// shapes and the number of ranks alone, so every rank computes the same one, for every dtype. To add a layout: a
/// struct with `build` here, its cases in tests/buffer/layout_test.cpp.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include <fsdp/core/checked.hpp>
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

struct Layout {
  std::vector<Shape> shapes;
  std::vector<std::int64_t> offsets;  ///< where each tensor starts in the full buffer
  std::vector<Run> runs;
  std::int64_t full_size = 0;   ///< elements, padding included
  std::int64_t local_size = 0;  ///< elements, padding included; the same on every rank
  Run across;                   ///< equal parts of the local buffer, over a mesh's outer axis; set by cut_across

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

  /// Elements of a local buffer that is cut over the outer axis too.
  std::int64_t across_size() const { return across.counts.front(); }

  /// What rank (shard, replica) of a mesh holds of it then, in the order of its buffer.
  std::vector<Piece> pieces_across(int shard, int replica) const {
    const std::int64_t begin = across.begin(replica);
    const std::int64_t end = begin + across_size();
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

  /// Cuts the local buffer into equal parts over `ranks`, padding it where they do not divide it.
  void cut_across(int ranks) {
    if (ranks > 1) local_size = round_up(local_size, element_alignment * ranks);
    across = {.full = 0,
              .local = 0,
              .counts = std::vector<std::int64_t>(static_cast<std::size_t>(ranks), local_size / ranks)};
  }
};

/// A layout policy: `L::build(shapes, ranks)`.
template <class L>
concept LayoutPolicy = requires(std::span<const Shape> shapes, int ranks) {
  { L::build(shapes, ranks) } -> std::same_as<Layout>;
  { L::name } -> std::convertible_to<std::string_view>;
};

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

/// Each tensor cut along its first axis into chunks of ceil(rows / ranks); trailing ranks may have short or empty
/// chunks. Every rank's buffer has room for a whole chunk. Source: FSDP2 (torch.chunk).
struct PerParameter {
  static constexpr std::string_view name = "per-parameter";

  static Layout build(std::span<const Shape> shapes, int ranks) {
    Layout layout = place(shapes);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const std::int64_t rows = shapes[i].rank == 0 ? 1 : shapes[i][0];
      const std::int64_t row = rows == 0 ? 0 : shapes[i].numel() / rows;
      const std::int64_t chunk = ceil_divide(rows, ranks);
      Run run{.full = layout.offsets[i], .local = layout.local_size, .counts = {}};
      for (int rank = 0; rank < ranks; ++rank)
        run.counts.push_back(std::clamp<std::int64_t>(rows - rank * chunk, 0, chunk) * row);
      layout.runs.push_back(std::move(run));
      layout.local_size += round_up(chunk * row, element_alignment);
    }
    return layout;
  }
};

/// The whole group as one range, cut into equal parts wherever the cuts fall. Source: FSDP1's flat parameter.
struct Flat {
  static constexpr std::string_view name = "flat";

  static Layout build(std::span<const Shape> shapes, int ranks) {
    Layout layout = place(shapes);
    layout.full_size = round_up(layout.full_size, element_alignment * ranks);
    layout.local_size = layout.full_size / ranks;
    layout.runs = {{.full = 0,
                    .local = 0,
                    .counts = std::vector<std::int64_t>(static_cast<std::size_t>(ranks), layout.local_size)}};
    return layout;
  }
};

static_assert(LayoutPolicy<PerParameter> && LayoutPolicy<Flat>);

}  // namespace fsdp::buffer

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Placements of a buffer over a mesh, one per axis, and the collective that changes one list of placements into
/// another.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace fsdp::buffer {

struct Shard {};      ///< each rank stores its own ranges
struct Replicate {};  ///< each rank stores all elements
struct Partial {};    ///< each rank stores a summand of all elements; the value is the sum over ranks

/// The distribution of a tensor's elements over one axis of a mesh.
template <class P>
concept Placement = std::is_same_v<P, Shard> || std::is_same_v<P, Replicate> || std::is_same_v<P, Partial>;

/// The placements of all axes. Axis 0 is the outer one; the last axis shards a group's tensors over consecutive ranks.
/// The outer axis may be Shard only if the inner one is, so that a local buffer is one contiguous range.
template <Placement... P>
struct Placements {
  static constexpr std::size_t axes = sizeof...(P);  ///< number of axes of the mesh: 1 or 2
  static_assert(axes == 1 || axes == 2, "fsdp: a buffer has a placement for each of a mesh's axes, one or two");
  static constexpr std::array<bool, axes> sharded{std::is_same_v<P, Shard>...};    ///< whether each axis is Shard
  static constexpr std::array<bool, axes> partial{std::is_same_v<P, Partial>...};  ///< whether each axis is Partial
  static_assert(axes == 1 || !sharded.front() || sharded.back(),
                "fsdp: a buffer sharded over the outer axis alone is no contiguous range; shard the inner axis first");
  static constexpr bool shards_tensors = sharded.back();  ///< tensors are sharded over the inner axis
  /// Whether each shard is divided once more over the outer axis.
  static constexpr bool shards_shards = axes == 2 && sharded.front() && sharded.back();
};

/// The operation that changes one placement into another.
enum class Move : std::uint8_t { impossible, all_gather, reduce_scatter, all_reduce, view };

/// An operation over one axis.
struct Change {
  Move move = Move::impossible;  ///< the operation
  std::size_t axis = 0;          ///< the axis that it runs over
};

/// Returns the operation that changes From into To; impossible unless exactly one axis differs.
template <class From, class To>
consteval Change change_of() {
  if constexpr (From::axes != To::axes) {
    return {};
  } else {
    Change change;
    int changes = 0;
    for (std::size_t axis = 0; axis < From::axes; ++axis) {
      const bool sharded = From::sharded[axis], partial = From::partial[axis];
      const bool to_sharded = To::sharded[axis], to_partial = To::partial[axis];
      if (sharded == to_sharded && partial == to_partial) continue;
      ++changes;
      change.axis = axis;
      if (to_partial)
        change.move = Move::impossible;
      else if (sharded)
        change.move = Move::all_gather;
      else if (partial)
        change.move = to_sharded ? Move::reduce_scatter : Move::all_reduce;
      else
        change.move = Move::view;
    }
    return changes == 1 ? change : Change{};
  }
}

}  // namespace fsdp::buffer

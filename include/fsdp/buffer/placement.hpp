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

struct Shard {};      ///< each rank holds its ranges
struct Replicate {};  ///< each rank holds everything
struct Partial {};    ///< each rank holds everything; the value is the sum over ranks

/// Where the elements of a tensor are, on one axis of a mesh.
template <class P>
concept Placement = std::is_same_v<P, Shard> || std::is_same_v<P, Replicate> || std::is_same_v<P, Partial>;

/// The placements of all axes. Axis 0 is the outer one; the last axis shards a group's tensors over consecutive ranks.
/// The outer axis may be Shard only if the inner one is, so that a local buffer is one contiguous range.
template <Placement... P>
struct Placements {
  static constexpr std::size_t axes = sizeof...(P);  ///< of the mesh: 1 or 2
  static_assert(axes == 1 || axes == 2, "fsdp: a buffer has a placement for each of a mesh's axes, one or two");
  static constexpr std::array<bool, axes> sharded{std::is_same_v<P, Shard>...};    ///< by axis
  static constexpr std::array<bool, axes> partial{std::is_same_v<P, Partial>...};  ///< by axis
  static_assert(axes == 1 || !sharded.front() || sharded.back(),
                "fsdp: a buffer sharded over the outer axis alone is no contiguous range; shard the inner axis first");
  static constexpr bool shards_tensors = sharded.back();  ///< tensors are cut over the inner axis
  /// Each shard is cut once more over the outer axis.
  static constexpr bool shards_shards = axes == 2 && sharded.front() && sharded.back();
};

/// The operation that changes one placement into another.
enum class Move : std::uint8_t { impossible, all_gather, reduce_scatter, all_reduce, view };

/// An operation over one axis.
struct Change {
  Move move = Move::impossible;  ///< what is done
  std::size_t axis = 0;          ///< over which axis
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

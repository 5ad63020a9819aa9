// SPDX-License-Identifier: Apache-2.0
/// @file
/// The kinds of collectives, and counts of them: calls and bytes, by kind and by axis of a mesh.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fsdp::comm {

/// Kinds of collectives.
enum class Op : std::uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  reduce,
  broadcast,
  gather_bytes,
  barrier
};
/// All kinds of collectives, in the order of Op.
inline constexpr std::array all_ops = {Op::all_gather, Op::reduce_scatter, Op::all_reduce,   Op::all_to_all,
                                       Op::reduce,     Op::broadcast,      Op::gather_bytes, Op::barrier};
/// Returns the name in records and messages, such as "all_gather".
std::string_view name_of(Op op);

/// Collectives of one kind. The counts are the same on all ranks of a communicator, except the bytes of an all_to_all
/// whose ranks receive unequal amounts: each rank counts only its own.
struct Calls {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;  ///< total bytes of whole buffers, with the pieces of all ranks: the sum of Record::bytes

  /// Add and subtract both numbers.
  /// @{
  constexpr Calls& operator+=(const Calls& other) {
    calls += other.calls;
    bytes += other.bytes;
    return *this;
  }
  constexpr Calls& operator-=(const Calls& other) {
    calls -= other.calls;
    bytes -= other.bytes;
    return *this;
  }
  /// @}
  friend constexpr bool operator==(const Calls&, const Calls&) = default;
};

/// Collectives of one communicator, by kind.
struct Traffic {
  std::array<Calls, all_ops.size()> by_op = {};

  /// Returns the counts of one kind.
  /// @{
  constexpr Calls& operator[](Op op) { return by_op[static_cast<std::size_t>(op)]; }
  constexpr const Calls& operator[](Op op) const { return by_op[static_cast<std::size_t>(op)]; }
  /// @}
  /// Returns the number of calls of all kinds.
  constexpr std::int64_t calls() const {
    std::int64_t sum = 0;
    for (const Calls& each : by_op) sum += each.calls;
    return sum;
  }
  /// Adds kind by kind; `later - earlier` gives the calls made in between.
  constexpr Traffic& operator+=(const Traffic& other) {
    for (const Op op : all_ops) (*this)[op] += other[op];
    return *this;
  }
  friend constexpr Traffic operator-(Traffic later, const Traffic& earlier) {
    for (const Op op : all_ops) later[op] -= earlier[op];
    return later;
  }
  friend constexpr bool operator==(const Traffic&, const Traffic&) = default;
};

/// Collectives by axis of the mesh that a strategy works on. Counts are 0 for an axis that the mesh does not have or
/// that has only one rank.
struct MeshTraffic {
  Traffic world = {};     ///< all ranks
  Traffic across = {};    ///< ranks with the same position in each group of consecutive ranks
  Traffic shard = {};     ///< ranks of one group of consecutive ranks: K of them in hybrid:K and fsdp2:K
  Traffic sequence = {};  ///< the consecutive ranks that share a sequence

  /// Calls visitor(name, traffic) for each axis.
  template <class Self, class Visitor>
  static constexpr void visit(Self& self, Visitor&& visitor) {
    visitor("world", self.world);
    visitor("across", self.across);
    visitor("shard", self.shard);
    visitor("sequence", self.sequence);
  }
  friend constexpr MeshTraffic operator-(const MeshTraffic& later, const MeshTraffic& earlier) {
    return {later.world - earlier.world, later.across - earlier.across, later.shard - earlier.shard,
            later.sequence - earlier.sequence};
  }
  friend constexpr bool operator==(const MeshTraffic&, const MeshTraffic&) = default;
};

}  // namespace fsdp::comm

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks as a grid: axis 0 replicates (or shards the outer way), axis 1 shards consecutive ranks.
#pragma once

#include <comm/collectives.hpp>

namespace fsdp::comm {

/// The ranks of a communicator, which must outlive the mesh, on `axes` axes.
template <Communicator C, int axes>
class Mesh;

/// One axis: all ranks.
template <Communicator C>
class Mesh<C, 1> {
 public:
  /// All ranks of `world`.
  explicit Mesh(C& world) : world_(&world) {}
  /// The communicator that it was made of.
  C& world() const { return *world_; }

 private:
  C* world_;
};

/// One axis.
template <Communicator C>
Mesh(C&) -> Mesh<C, 1>;

/// Two axes: rank r of `world` is at (r / shards, r % shards). All ranks make their meshes in the same order. Throws
/// InputError where groups of `shards` do not fill the world.
template <Communicator C>
class Mesh<C, 2> {
 public:
  /// Collective: splits `world` both ways.
  Mesh(C& world, int shards)
      : world_(&world),
        shards_(checked(world, shards)),
        replicate_(comm::split(world, [shards](int rank) { return rank % shards; })),
        shard_(comm::split(world, [shards](int rank) { return rank / shards; })) {}

  /// All ranks.
  C& world() const { return *world_; }
  C& replicate_axis() { return replicate_; }  ///< ranks that hold the same shard
  /// The same, of a mesh that is not changed.
  const C& replicate_axis() const { return replicate_; }
  C& shard_axis() { return shard_; }  ///< consecutive ranks, which hold one replica together
  /// The same, of a mesh that is not changed.
  const C& shard_axis() const { return shard_; }
  /// Ranks of the inner axis.
  int shards() const { return shards_; }

 private:
  static int checked(const C& world, int shards) {
    require<InputError>(shards > 0 && world.size() % shards == 0, "mesh: ", world.size(),
                        " ranks cannot form groups of ", shards,
                        "; the number of ranks must be a multiple of the group's");
    return shards;
  }

  C* world_;
  int shards_;
  C replicate_;
  C shard_;
};

/// Two axes.
template <Communicator C>
Mesh(C&, int) -> Mesh<C, 2>;

}  // namespace fsdp::comm

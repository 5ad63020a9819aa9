// SPDX-License-Identifier: Apache-2.0
/// @file
/// A grid of ranks: axis 0 replicates (or is the outer sharding), axis 1 shards over consecutive ranks.
#pragma once

#include <tessera/comm/collectives.hpp>

namespace fsdp::comm {

/// The ranks of a communicator, arranged in a grid with `axes` axes. The communicator must outlive the mesh.
template <Communicator C, int axes>
class Mesh;

/// A mesh of one axis, which contains all ranks.
template <Communicator C>
class Mesh<C, 1> {
 public:
  explicit Mesh(C& world) : world_(&world) {}  ///< a mesh of all ranks of `world`
  C& world() const { return *world_; }         ///< the communicator that the mesh was made from

 private:
  C* world_;
};

/// Deduces a mesh of one axis.
template <Communicator C>
Mesh(C&) -> Mesh<C, 1>;

/// A mesh of two axes: rank r of `world` is at (r / shards, r % shards). All ranks construct their meshes in the same
/// order. The constructor throws InputError if `shards` does not divide the number of ranks.
template <Communicator C>
class Mesh<C, 2> {
 public:
  /// Splits `world` along both axes. Collective.
  Mesh(C& world, int shards)
      : world_(&world),
        shards_(checked(world, shards)),
        replicate_(comm::split(world, [shards](int rank) { return rank % shards; })),
        shard_(comm::split(world, [shards](int rank) { return rank / shards; })) {}

  C& world() const { return *world_; }        ///< the communicator of all ranks
  C& replicate_axis() { return replicate_; }  ///< the ranks that store the same shard as this one
  /// The same for a const mesh.
  const C& replicate_axis() const { return replicate_; }
  C& shard_axis() { return shard_; }  ///< the consecutive ranks that together store one replica
  /// The same for a const mesh.
  const C& shard_axis() const { return shard_; }
  int shards() const { return shards_; }  ///< the number of ranks on the shard axis

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

/// Deduces a mesh of two axes.
template <Communicator C>
Mesh(C&, int) -> Mesh<C, 2>;

}  // namespace fsdp::comm

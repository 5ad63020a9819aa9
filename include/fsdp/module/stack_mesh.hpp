// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ranks that a stack works on: a mesh of as many axes as its strategy has, and each group's axes on it.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <comm/mesh.hpp>
#include <fsdp/buffer/placement.hpp>
#include <fsdp/sharding/problem.hpp>

namespace fsdp {

/// The communicators of a group; nullptr where an axis has one rank.
template <class Comm>
struct GroupAxes {
  Comm* shard = nullptr;   ///< cuts the tensors
  Comm* across = nullptr;  ///< holds the same shards
  Comm* keep = nullptr;    ///< keeps the weights together after forward (FullyShard over k ranks)

  /// Ranks of an axis.
  static int size(const Comm* axis) { return axis == nullptr ? 1 : axis->size(); }
  /// This rank's place on an axis.
  static int rank(const Comm* axis) { return axis == nullptr ? 0 : axis->rank(); }
};

/// The mesh that a stack's strategy works on, and which of its communicators a group of parameters uses.
template <class Stack>
class StackMesh {
 public:
  using Comm = typename Stack::Comm;
  using Sharding = typename Stack::Sharding;
  using Mesh = comm::Mesh<Comm, Stack::mesh_axes>;

  /// Collective where the strategy works on two axes. `world` must outlive it.
  StackMesh(Comm& world, const Sharding& sharding) : mesh_(make(world, sharding)) {}
  /// Of a mesh that was made before; one of another number of axes does not compile.
  template <int axes>
  explicit StackMesh(comm::Mesh<Comm, axes> mesh) : mesh_(fitting(std::move(mesh))) {}

  /// All ranks.
  Comm& world() const { return mesh_.world(); }
  /// One or two axes.
  Mesh& mesh() { return mesh_; }
  /// The world and, where the strategy works on two axes, the outer and the inner one.
  std::vector<Comm*> communicators() {
    std::vector<Comm*> list{&mesh_.world()};
    if constexpr (Stack::mesh_axes == 2) list.insert(list.end(), {&mesh_.replicate_axis(), &mesh_.shard_axis()});
    return list;
  }
  /// What they hold besides the caller's tensors.
  std::int64_t scratch_bytes() const {
    const auto bytes = [](const Comm& communicator) -> std::int64_t {
      if constexpr (requires { communicator.scratch_bytes(); })
        return communicator.scratch_bytes();
      else
        return 0;
    };
    std::int64_t sum = bytes(mesh_.world());
    if constexpr (Stack::mesh_axes == 2) sum += bytes(mesh_.replicate_axis()) + bytes(mesh_.shard_axis());
    return sum;
  }

  /// Sizes of the axes, for groups that are not resident.
  sharding::Axes axes(const sharding::Facts& facts) const {
    if constexpr (Stack::mesh_axes == 2) {
      if (facts.across != sharding::Across::nothing)
        return {.shard = mesh_.shards(), .across = world().size() / mesh_.shards()};
      return {.shard = world().size(), .keep = facts.group_after_forward ? mesh_.shards() : 0};
    }
    return {.shard = world().size()};
  }

  /// Of a group that is `resident`, or not, in a problem with these axes.
  GroupAxes<Comm> axes_of(bool resident, const sharding::Facts& facts, const sharding::Problem& problem) {
    const auto axis = [](Comm& communicator) { return communicator.size() > 1 ? &communicator : nullptr; };
    Comm* const all = axis(world());
    if (resident) return {.shard = nullptr, .across = all};
    if constexpr (Stack::mesh_axes == 2) {
      if (facts.across != sharding::Across::nothing)
        return {.shard = axis(mesh_.shard_axis()), .across = axis(mesh_.replicate_axis())};
      return {.shard = all, .keep = problem.keeps_parts() ? &mesh_.shard_axis() : nullptr};
    }
    return {.shard = all};
  }

 private:
  static Mesh make(Comm& world, const Sharding& sharding) {
    if constexpr (Stack::mesh_axes == 1)
      return Mesh(world);
    else
      return Mesh(world, sharding.ranks_per_group());
  }
  template <int axes>
  static Mesh fitting(comm::Mesh<Comm, axes>&& mesh) {
    static_assert(axes >= Stack::mesh_axes,
                  "fsdp: a hybrid strategy on a mesh of one axis has nothing to replicate over; make the mesh with "
                  "comm::Mesh(world, ranks per group), or take the inner strategy alone");
    static_assert(axes <= Stack::mesh_axes,
                  "fsdp: this strategy works on all ranks alike, and the mesh has two axes; make it with "
                  "comm::Mesh(world), or wrap the strategy in HybridShard");
    return std::move(mesh);
  }

  Mesh mesh_;
};

}  // namespace fsdp

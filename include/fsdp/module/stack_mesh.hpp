// SPDX-License-Identifier: Apache-2.0
/// @file
/// The mesh of ranks that a stack works on, with as many axes as its strategy has, and each group's axes on it.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/mesh.hpp>
#include <tessera/comm/traffic.hpp>
#include <tessera/fsdp/buffer/placement.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>

namespace fsdp {

/// The communicators of a group; nullptr for an axis of one rank.
template <class Comm>
struct GroupAxes {
  Comm* shard = nullptr;   ///< ranks over which tensors are sharded
  Comm* across = nullptr;  ///< ranks that hold the same shards
  Comm* keep = nullptr;    ///< ranks that together keep the weights after forward (FullyShard over k ranks)
  Comm* reduce = nullptr;  ///< ranks over which partial gradients are reduced; nullptr: they are added up at rest

  /// Ranks of an axis.
  static int size(const Comm* axis) { return axis == nullptr ? 1 : axis->size(); }
  /// This rank's index on an axis.
  static int rank(const Comm* axis) { return axis == nullptr ? 0 : axis->rank(); }
};

/// The mesh that a stack's strategy works on, and which of its communicators a group of parameters uses.
template <class Stack>
class StackMesh {
 public:
  using Comm = typename Stack::Comm;
  using Sharding = typename Stack::Sharding;
  using Mesh = comm::Mesh<Comm, Stack::mesh_axes>;

  /// Collective if the strategy works on two axes. `world` must outlive it.
  StackMesh(Comm& world, const Sharding& sharding) : mesh_(make(world, sharding)) {}
  /// Takes an existing mesh. A mesh with another number of axes than the strategy's does not compile.
  template <int axes>
  explicit StackMesh(comm::Mesh<Comm, axes> mesh) : mesh_(fitting(std::move(mesh))) {}

  /// Makes the axis of the consecutive ranks that share a sequence, whose groups must make up the world. Collective if
  /// there are several. Throws InputError if the stack has whole sequences.
  void share_sequences(int ranks_per_sequence) {
    if constexpr (Stack::Sequence::shards) {
      if (ranks_per_sequence > 1)
        sequence_.emplace(comm::split(world(), [=](int rank) { return rank / ranks_per_sequence; }));
    } else {
      require<InputError>(ranks_per_sequence == 1, "sequence: ", ranks_per_sequence,
                          " ranks are to share each sequence, and this stack has whole ones; take fsdp::Ulysses as its "
                          "fifth policy, or 1 rank");
    }
  }
  /// The ranks that share this rank's sequences; nullptr if each has its own.
  Comm* sequence_axis() {
    if constexpr (Stack::Sequence::shards)
      return sequence_ ? &*sequence_ : nullptr;
    else
      return nullptr;
  }

  /// All ranks.
  Comm& world() const { return mesh_.world(); }
  /// The mesh, of one or two axes.
  Mesh& mesh() { return mesh_; }
  /// Returns the world's communicator; if the strategy works on two axes, those of the outer and the inner axis; and
  /// that of the ranks that share a sequence, if several do.
  std::vector<Comm*> communicators() {
    Comm* list[4] = {&mesh_.world()};
    Comm** end = list + 1;
    if constexpr (Stack::mesh_axes == 2) {
      *end++ = &mesh_.replicate_axis();
      *end++ = &mesh_.shard_axis();
    }
    if (Comm* const sequence = sequence_axis()) *end++ = sequence;
    return {list, end};
  }
  /// Collectives of its communicators so far.
  comm::MeshTraffic traffic() {
    const auto of = [](Comm& axis) { return axis.size() > 1 ? axis.monitor().totals.traffic : comm::Traffic{}; };
    comm::MeshTraffic sums{.world = of(mesh_.world())};
    if constexpr (Stack::mesh_axes == 2) {
      sums.across = of(mesh_.replicate_axis());
      sums.shard = of(mesh_.shard_axis());
    }
    if (Comm* const sequence = sequence_axis()) sums.sequence = of(*sequence);
    return sums;
  }
  /// Calls the `end_run` of communicators that have one.
  void end_run() noexcept {
    if constexpr (requires(Comm & axis) { axis.end_run("world"); }) {
      mesh_.world().end_run("world");
      if constexpr (Stack::mesh_axes == 2) {
        mesh_.replicate_axis().end_run("across");
        mesh_.shard_axis().end_run("shard");
      }
      if (Comm* const sequence = sequence_axis()) sequence->end_run("sequence");
    }
  }
  /// Bytes that the communicators hold besides the caller's tensors.
  std::int64_t scratch_bytes() const {
    const auto bytes = [](const Comm& communicator) -> std::int64_t {
      std::int64_t held = 0;
      if constexpr (requires { communicator.scratch_bytes(); }) held = communicator.scratch_bytes();
      require<InputError>(held >= 0, "communicator: its scratch_bytes are ", held, "; they are at least 0");
      return held;
    };
    std::int64_t sum = bytes(mesh_.world());
    if constexpr (Stack::mesh_axes == 2) sum += bytes(mesh_.replicate_axis()) + bytes(mesh_.shard_axis());
    if constexpr (Stack::Sequence::shards)
      if (sequence_) sum += bytes(*sequence_);
    return sum;
  }

  /// Returns the sizes of the axes for groups that are not resident. Throws InputError where a strategy on two axes
  /// uses one, one on a single axis needs two, or its type and its facts place the optimizer's state differently.
  sharding::Axes axes(const sharding::Facts& facts) const {
    constexpr bool shards_across = std::is_same_v<typename Stack::OptimizerPlacement, buffer::Shard>;
    require<InputError>(shards_across == (facts.across == sharding::Across::shard),
                        "sharding: the strategy's type places optimizer state across groups as ",
                        shards_across ? "Shard" : "Replicate", ", and its facts.across is ",
                        facts.across == sharding::Across::shard ? "" : "not ",
                        "sharding::Across::shard; set `using Across = buffer::Shard` and that together, or neither");
    require<InputError>(
        Stack::mesh_axes == 2 || (facts.across == sharding::Across::nothing && !facts.group_after_forward),
        "sharding: a strategy's facts state what crosses groups of ranks or stays in them, and it has no groups; "
        "give it mesh_axes = 2 and ranks_per_group(), or leave facts.across and facts.group_after_forward out");
    if constexpr (Stack::mesh_axes == 2) {
      if (facts.across != sharding::Across::nothing)
        return {.shard = mesh_.shards(), .across = world().size() / mesh_.shards()};
      require<InputError>(
          facts.group_after_forward, "sharding: a strategy works on groups of ", mesh_.shards(),
          " ranks, and its facts use them for nothing: all ranks would share one model; set facts.across to "
          "sharding::Across::all_reduce (each group holds a whole model), or facts.group_after_forward "
          "(groups keep the weights after forward)");
      return {.shard = world().size(), .keep = mesh_.shards()};
    }
    return {.shard = world().size()};
  }

  /// Returns the communicators of a group in a problem with these axes. One that is never gathered is sharded over all
  /// ranks.
  GroupAxes<Comm> axes_of(const sharding::GroupFacts& group, const sharding::Facts& facts,
                          const sharding::Problem& problem) {
    const auto axis = [](Comm& communicator) { return communicator.size() > 1 ? &communicator : nullptr; };
    Comm* const all = axis(world());
    if (group.resident) return {.shard = nullptr, .across = all};
    if (!group.gathered) return {.shard = all, .reduce = all};
    // One rank too rounds and adds each piece's gradient as several do.
    Comm* const reduce = facts.pieces > 0 ? &world() : all;
    if constexpr (Stack::mesh_axes == 2) {
      if (facts.across != sharding::Across::nothing) {
        Comm* const shard = axis(mesh_.shard_axis());
        return {.shard = shard, .across = axis(mesh_.replicate_axis()), .reduce = shard};
      }
      return {.shard = all, .keep = problem.keeps_parts() ? &mesh_.shard_axis() : nullptr, .reduce = reduce};
    }
    return {.shard = all, .reduce = reduce};
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
  struct Nothing {};
  /// Only stacks that shard sequences have such an axis.
  [[no_unique_address]] std::conditional_t<Stack::Sequence::shards, std::optional<Comm>, Nothing> sequence_;
};

}  // namespace fsdp

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The mesh of ranks that a stack works on, with as many axes as its strategy uses, and each group's axes on the mesh.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/mesh.hpp>
#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp {

/// The communicators of a group; nullptr for an axis of one rank.
template <class Comm>
struct GroupAxes {
  Comm* shard = nullptr;   ///< ranks over which tensors are sharded
  Comm* across = nullptr;  ///< ranks that hold the same shards
  Comm* keep = nullptr;    ///< ranks that together keep the weights after forward (FullyShard over k ranks)
  /// Ranks over which partial gradients are reduced; nullptr: they are accumulated in the buffer at rest.
  Comm* reduce = nullptr;

  /// Returns the number of ranks of an axis.
  static int size(const Comm* axis) { return axis == nullptr ? 1 : axis->size(); }
  /// Returns this rank's index on an axis.
  static int rank(const Comm* axis) { return axis == nullptr ? 0 : axis->rank(); }
};

/// The types of a stack on which the memory of a module depends: stacks that differ only in strategy or tiling share
/// it.
template <class CommT, class PrecisionT, class Across, class Space, int axes, bool by_value, class SequenceT>
struct ModuleTypes {
  using Comm = CommT;
  using Device = typename CommT::Device;
  using Precision = PrecisionT;
  using OptimizerPlacement = Across;
  using OptimizerSpace = Space;
  using Sequence = SequenceT;
  static constexpr int mesh_axes = axes;
  static constexpr bool axes_by_value = by_value;
};
/// The ModuleTypes of a Stack.
template <class Stack>
using TypesOf =
    ModuleTypes<typename Stack::Comm, typename Stack::Precision, typename Stack::OptimizerPlacement,
                typename Stack::OptimizerSpace, Stack::mesh_axes, Stack::axes_by_value, typename Stack::Sequence>;

/// The mesh that a stack's strategy works on, and the communicators of it that each group of parameters uses. `Stack`
/// may be a ModuleTypes.
template <class Stack>
class StackMesh {
 public:
  using Comm = typename Stack::Comm;
  /// Collective if the strategy works on two axes. `world` must outlive it.
  StackMesh(Comm& world, const StrategyCalls& strategy)
      : world_(&world), axes_by_value_(strategy.mesh.by_value), shares_sequences_(strategy.shares_sequences) {
    if constexpr (Stack::mesh_axes == 2)
      if (strategy.mesh.ranks_per_group) groups_.emplace(world, *strategy.mesh.ranks_per_group);
  }
  /// Takes an existing mesh. A mesh whose number of axes differs from the strategy's does not compile. If the number
  /// depends on the strategy's value, `axes` rejects it at run time.
  template <int axes>
  explicit StackMesh(comm::Mesh<Comm, axes> mesh) : world_(&mesh.world()) {
    static_assert(axes >= Stack::mesh_axes || Stack::axes_by_value,
                  "fsdp: a hybrid strategy on a mesh of one axis has nothing to replicate over; make the mesh with "
                  "comm::Mesh(world, ranks per group), or take the inner strategy alone");
    static_assert(axes <= Stack::mesh_axes,
                  "fsdp: this strategy works on all ranks alike, and the mesh has two axes; make it with "
                  "comm::Mesh(world), or wrap the strategy in HybridShard");
    if constexpr (axes == 2) groups_.emplace(std::move(mesh));
  }

  /// Creates the communicator of the consecutive ranks that share a sequence; `ranks_per_sequence` must divide the size
  /// of the world. Collective if it is above 1. Throws InputError if it is above 1 and the stack has whole sequences.
  void share_sequences(int ranks_per_sequence) {
    require<InputError>((Stack::Sequence::shards && shares_sequences_) || ranks_per_sequence == 1,
                        "sequence: ", ranks_per_sequence,
                        " ranks are to share each sequence, and this stack has whole ones; take fsdp::Ulysses as its "
                        "fifth policy, or 1 rank");
    if constexpr (Stack::Sequence::shards)
      if (ranks_per_sequence > 1)
        sequence_.emplace(comm::split(world(), [=](int rank) { return rank / ranks_per_sequence; }));
  }
  /// The communicator of the ranks that share this rank's sequences; nullptr if each rank has whole sequences.
  Comm* sequence_axis() {
    if constexpr (Stack::Sequence::shards)
      return sequence_ ? &*sequence_ : nullptr;
    else
      return nullptr;
  }

  /// The communicator of all ranks.
  Comm& world() const { return *world_; }
  /// Whether the mesh has two axes.
  bool has_groups() const {
    if constexpr (Stack::mesh_axes == 2) return groups_.has_value();
    return false;
  }
  /// Returns the world's communicator, the communicators of the outer and the inner axis if the strategy works on two
  /// axes, and the communicator of the ranks that share a sequence if several do.
  std::vector<Comm*> communicators() {
    std::vector<Comm*> list;
    each(*this, [&](Comm& axis, const char*, Sum) { list.push_back(&axis); });
    return list;
  }
  /// Returns the traffic of the mesh's communicators so far.
  comm::MeshTraffic traffic() {
    comm::MeshTraffic sums;
    each(*this, [&](Comm& axis, const char*, Sum sum) {
      if (axis.size() > 1) sums.*sum = axis.monitor().totals.traffic;
    });
    return sums;
  }
  /// Calls `end_run` of all communicators that have this function.
  void end_run() noexcept {
    if constexpr (requires(Comm & axis) { axis.end_run("world"); })
      each(*this, [](Comm& axis, const char* name, Sum) { axis.end_run(name); });
  }
  /// Returns the number of bytes that the communicators allocate in addition to the caller's tensors.
  std::int64_t scratch_bytes() const {
    std::int64_t sum = 0;
    each(*this, [&](const Comm& axis, const char*, Sum) {
      std::int64_t held = 0;
      if constexpr (requires { axis.scratch_bytes(); }) held = axis.scratch_bytes();
      require<InputError>(held >= 0, "communicator: its scratch_bytes are ", held, "; they are at least 0");
      sum += held;
    });
    return sum;
  }

  /// Returns the sizes of the axes of each part of a strategy, for its groups that are not resident. Throws InputError
  /// if a strategy on two axes uses only one, if a strategy on one axis needs two, or if its type and its facts place
  /// the optimizer's state differently.
  std::vector<sharding::Axes> axes(const StrategyCalls& strategy) const {
    require<InputError>(!has_groups() || !strategy.facts.whole_at_rest,
                        "sharding: a strategy keeps all weights on every rank (facts.whole_at_rest), so that groups of "
                        "ranks have no use; take it alone");
    const auto groups = [](const StrategyPart& part) { return part.mesh.ranks_per_group.has_value(); };
    const bool alone = strategy.parts.size() == 1 || std::ranges::none_of(strategy.parts, groups);
    std::vector<sharding::Axes> list;
    for (const StrategyPart& part : strategy.parts) list.push_back(axes(part, alone));
    return list;
  }

  /// Returns the communicators of a group with these facts, whose strategy is `part`. A group that is never gathered is
  /// sharded over all ranks. `sums_in_order`: see sharding::Facts.
  GroupAxes<Comm> axes_of(const sharding::GroupFacts& group, const StrategyPart& part, bool sums_in_order) {
    const auto axis = [](Comm& communicator) { return communicator.size() > 1 ? &communicator : nullptr; };
    Comm* const all = axis(world());
    if (group.resident) return {.shard = nullptr, .across = all};
    if (!group.gathered) return {.shard = all, .reduce = all};
    // A single rank also rounds and adds each piece's gradient, so that results match those of several ranks.
    Comm* const reduce = sums_in_order ? &world() : all;
    if constexpr (Stack::mesh_axes == 2)
      if (groups_) {
        if (part.rules.facts.across != sharding::Across::nothing) {
          Comm* const shard = axis(groups_->shard_axis());
          return {.shard = shard, .across = axis(groups_->replicate_axis()), .reduce = shard};
        }
        return {.shard = all, .keep = group.axes.keeps_parts() ? &groups_->shard_axis() : nullptr, .reduce = reduce};
      }
    return {.shard = all, .reduce = reduce};
  }

 private:
  struct Nothing {};
  using Sum = comm::Traffic comm::MeshTraffic::*;

  /// `alone`: whether no other part uses the groups of an existing mesh.
  sharding::Axes axes(const StrategyPart& part, bool alone) const {
    const sharding::Facts& facts = part.rules.facts;
    require<InputError>(part.shards_across == (facts.across == sharding::Across::shard),
                        "sharding: the strategy's type places optimizer state across groups as ",
                        part.shards_across ? "Shard" : "Replicate", ", and its facts.across is ",
                        facts.across == sharding::Across::shard ? "" : "not ",
                        "sharding::Across::shard; set `using Across = buffer::Shard` and that together, or neither");
    require<InputError>(
        has_groups() || (facts.across == sharding::Across::nothing && !facts.group_after_forward),
        axes_by_value_
            ? "sharding: a strategy's facts state what crosses groups of ranks or stays in them, and there are none: "
              "its "
              "ranks_per_group() is 0, or the mesh has one axis; give it groups, or leave facts.across and "
              "facts.group_after_forward out"
            : "sharding: a strategy's facts state what crosses groups of ranks or stays in them, and it has no groups; "
              "give it mesh_axes = 2 and ranks_per_group(), or leave facts.across and facts.group_after_forward out");
    if constexpr (Stack::mesh_axes == 2)
      if (groups_ && (alone || part.mesh.ranks_per_group)) {
        if (facts.across != sharding::Across::nothing)
          return {.shard = groups_->shards(), .across = world().size() / groups_->shards()};
        require<InputError>(
            facts.group_after_forward, "sharding: the mesh has groups of ", groups_->shards(),
            " ranks, and the strategy's facts use them for nothing: all ranks would share one model; set facts.across "
            "to "
            "sharding::Across::all_reduce (each group holds a whole model), or facts.group_after_forward "
            "(groups keep the weights after forward), or take a mesh of one axis");
        return {.shard = world().size(), .keep = groups_->shards()};
      }
    return {.shard = world().size()};
  }

  /// Calls f(communicator, name, traffic) for each communicator of a mesh.
  template <class Self, class F>
  static void each(Self& self, F f) {
    f(*self.world_, "world", &comm::MeshTraffic::world);
    if constexpr (Stack::mesh_axes == 2)
      if (self.groups_) {
        f(self.groups_->replicate_axis(), "across", &comm::MeshTraffic::across);
        f(self.groups_->shard_axis(), "shard", &comm::MeshTraffic::shard);
      }
    if constexpr (Stack::Sequence::shards)
      if (self.sequence_) f(*self.sequence_, "sequence", &comm::MeshTraffic::sequence);
  }

  Comm* world_;
  bool axes_by_value_ = Stack::axes_by_value;
  bool shares_sequences_ = true;
  /// The mesh with two axes, if the strategy uses groups of ranks. Only stacks that may have two axes have this member.
  [[no_unique_address]] std::conditional_t<Stack::mesh_axes == 2, std::optional<comm::Mesh<Comm, 2>>, Nothing> groups_;
  /// The communicator of the ranks that share a sequence. Only stacks that shard sequences have this member.
  [[no_unique_address]] std::conditional_t<Stack::Sequence::shards, std::optional<Comm>, Nothing> sequence_;
};

}  // namespace fsdp

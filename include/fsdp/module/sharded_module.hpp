// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model whose weights, gradients and optimizer state are sharded over ranks: its memory, groups and schedules.
///
/// A model is an entry module that reads batches, a list of blocks, and a loss module (tessera/fsdp/models/model.hpp).
/// Memory is planned from the schedule and allocated in the constructor; a step allocates no tensor memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/mesh.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/offload.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/module/group_tensors.hpp>
#include <tessera/fsdp/module/module_plan.hpp>
#include <tessera/fsdp/module/parameter_group.hpp>
#include <tessera/fsdp/module/run_shape.hpp>
#include <tessera/fsdp/module/same_schedules.hpp>
#include <tessera/fsdp/module/slot.hpp>
#include <tessera/fsdp/module/stack_mesh.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/sharding/schedule_of.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp {

/// This rank's part of a sharded model: the buffers at rest, slots for gathered weights and gradients, the activation
/// arena, and the schedules of its passes. Executor runs the passes.
template <class ModelT>
class ShardedModule {
 public:
  using Model = ModelT;
  using Stack = typename Model::Stack;
  using Local = typename Stack::Local;
  using Device = typename Stack::Device;
  using Comm = typename Stack::Comm;
  using Group = ParameterGroup<Stack>;
  using Main = typename Group::Main;
  using Compute = typename Group::Compute;
  using Accumulate = typename Group::Accumulate;
  using Offload = device::HostOffload<Device>;
  using WeightSlot = Slot<Compute, Device>;
  using GradientSlot = Slot<Accumulate, Device>;

  /// `communicator` must outlive the module. Weights are zero until `initialize`d or loaded.
  ShardedModule(Comm& communicator, Model model, typename Stack::Sharding sharding, typename Stack::Tiling tiling,
                const RunShape& shape, Purpose purpose = Purpose::train)
      : ShardedModule(StackMesh<Stack>(communicator, sharding), std::move(model), sharding, tiling, shape, purpose) {}

  /// The same on a mesh, which must have as many axes as the strategy works on.
  template <int axes>
  ShardedModule(comm::Mesh<Comm, axes> mesh, Model model, typename Stack::Sharding sharding,
                typename Stack::Tiling tiling, const RunShape& shape, Purpose purpose = Purpose::train)
      : ShardedModule(StackMesh<Stack>(std::move(mesh)), std::move(model), sharding, tiling, shape, purpose) {}

  ShardedModule(const ShardedModule&) = delete;
  ShardedModule& operator=(const ShardedModule&) = delete;

  /// All ranks.
  Comm& communicator() const { return mesh_.world(); }
  /// Returns the world's communicator and, if the strategy works on two axes, those of the outer and the inner axis.
  std::vector<Comm*> communicators() { return mesh_.communicators(); }
  /// The constructor's arguments, the activation arena and the compute stream.
  /// @{
  const Model& model() const { return model_; }
  const RunShape& shape() const { return shape_; }
  const typename Stack::Tiling& tiling() const { return tiling_; }
  typename Device::Arena& arena() { return arena_; }
  typename Device::Stream& stream() { return stream_; }
  /// @}
  /// Blocks the host until all enqueued work is done. Call it before the host reads what the device wrote.
  void synchronize() { comm::synchronize(mesh_.world(), stream_); }
  /// Counts this rank's tensors on the device.
  device::Ledger& ledger() { return ledger_; }
  /// Counts tensors that are offloaded to host memory, except activations.
  device::Ledger& offload_ledger() { return offload_ledger_; }
  /// The arena of offloaded block inputs in host memory.
  typename Offload::Arena& offload_arena() { return offload_arena_; }
  /// Peak bytes of tensors offloaded to host memory.
  std::int64_t offloaded_bytes() const {
    return offload_ledger_.peak() + (Device::counts_only ? offload_arena_.peak() : 0);
  }
  /// The groups, in the order of sharding::Problem::groups.
  /// @{
  std::vector<Group>& groups() { return groups_; }
  const std::vector<Group>& groups() const { return groups_; }
  /// @}
  /// The placed schedule of a pass; empty if the module's purpose has no such pass.
  const sharding::Schedule& schedule(sharding::Pass pass) const {
    return plan_.schedules()[static_cast<std::size_t>(pass)];
  }
  /// The problem that the schedules are made for, except for its pass and micro-batches.
  const sharding::Problem& problem() const { return plan_.problem(); }
  /// Which groups each unit uses.
  const std::vector<sharding::UnitUse>& uses() const { return problem().units; }
  /// The lowest unit that has a backward; units before it save nothing.
  int first_backward() const { return plan_.first_backward(); }

  /// Tensor memory by kind. Activations and scratch are counted at their common peak; scratch includes the
  /// communicators'.
  device::BytesByKind peak_bytes() const {
    device::BytesByKind bytes = ledger_.current();
    bytes[static_cast<std::size_t>(device::MemoryKind::activations)] = arena_.peak() - arena_.peak_scratch();
    bytes[static_cast<std::size_t>(device::MemoryKind::scratch)] += arena_.peak_scratch() + mesh_.scratch_bytes();
    return bytes;
  }

  /// A part of a parameter that this rank holds; the views are into the buffers at rest.
  struct Piece {
    const NamedParameter* parameter = nullptr;
    std::int64_t begin = 0;  ///< first element, in the whole tensor
    Tensor<Main> main;       ///< empty if the piece is frozen and main weights would be a separate copy
    Tensor<Compute> model;   ///< the same memory as `main` if Group::one_copy
    Tensor<const Accumulate> gradient;
    std::int64_t resting = 0;  ///< its first element among all trained ones of this rank: index into optimizer state
    bool trainable = true;
    bool owned = true;  ///< one rank among replicas owns a piece: it writes it to files and counts it in norms

    /// Whether the piece has main weights.
    bool has_main() const { return main.data() != nullptr; }
    /// Elements of the piece.
    std::int64_t count() const { return model.numel(); }
  };

  /// Everything that this rank holds at rest. Gradients exist only in training.
  const std::vector<Piece>& pieces() const { return pieces_; }
  /// Number of elements that are trained on this rank, padding included.
  std::int64_t trained_size() const { return trained_size_; }

  /// Returns its groups as stack-independent bases.
  std::vector<const GroupTensors*> group_list() const {
    std::vector<const GroupTensors*> list;
    for (const Group& group : groups_) append(list, group);
    return list;
  }
  /// Returns three counts of elements of a rank of the world: trained ones at rest, all at rest, and those that it
  /// keeps after forward. They may differ between ranks.
  std::array<std::int64_t, 3> elements_of(int rank) const { return fsdp::elements_of(group_list(), rank); }

  /// Returns the name of the first trained parameter of which some rank steps only a part; empty if there is none. The
  /// same on all ranks.
  std::string first_cut() const {
    if (std::is_same_v<typename Stack::Sharding::AtRest, buffer::Replicate>) return {};
    return fsdp::first_cut(group_list(), std::is_same_v<typename Stack::OptimizerPlacement, buffer::Shard>);
  }

  /// Rounds the main weights into the model weights. Call it after main weights were set from outside.
  void sync_model_weights() {
    if constexpr (!Group::one_copy)
      for (const Piece& piece : pieces_)
        if (piece.has_main())
          device::enqueue(stream_, device::Copy<Main, Compute>{.x = Tensor<const Main>(piece.main), .y = piece.model});
  }

  /// Names of units and groups, for messages.
  const sharding::Names& names() const { return plan_.names(); }

  /// The slots of the placed schedules, by number.
  /// @{
  WeightSlot& weight_slot(int index) { return weight_slots_[static_cast<std::size_t>(index)]; }
  GradientSlot& gradient_slot(int index) { return gradient_slots_[static_cast<std::size_t>(index)]; }
  /// @}
  /// Marks all slots as free after `event`, which must follow all uses of them so far.
  void free_slots(const typename Device::Event& event) {
    for (auto& slot : weight_slots_) slot.free = event;
    for (auto& slot : gradient_slots_) slot.free = event;
  }

  /// Returns, for each parameter of a unit, its group and its index in the group.
  const std::vector<Reference>& references(int unit) const { return plan_.references(unit); }

 private:
  using Kind = device::MemoryKind;
  using Block = device::Block<Device>;

  ShardedModule(StackMesh<Stack> mesh, Model model, typename Stack::Sharding sharding, typename Stack::Tiling tiling,
                const RunShape& shape, Purpose purpose = Purpose::train)
      : mesh_(std::move(mesh)),
        model_(std::move(model)),
        tiling_(tiling),
        shape_(shape),
        purpose_(purpose),
        stream_(arena_, shape.threads),
        plan_(group_parameters(unit_parameters(model_), model_.units(),
                               sharding::facts_of(sharding).persistence_threshold),
              mesh_.axes(sharding::facts_of(sharding)), Device::overlaps, model_.units().keep_last_block) {
    collect_groups(sharding::facts_of(sharding), layout_of(sharding));
    plan_.place(purpose_, shape_.micro_batches,
                [&](const sharding::Problem& problem) { return sharding::schedule_of(sharding, problem); });
    if constexpr (!Device::counts_only) require_same_schedules(mesh_.world(), plan_.schedules());
    arena_ = Device::Arena::planned(ledger_, shape.activation_bytes);
    offload_arena_ = Offload::Arena::planned(offload_ledger_, shape.offloaded_activation_bytes);
    allocate();
  }

  void collect_groups(const sharding::Facts& facts, const typename Stack::Sharding::Layout& layout) {
    constexpr bool sharded = std::is_same_v<typename Stack::Sharding::AtRest, buffer::Shard>;
    std::vector<GroupAxes<Comm>> axes;
    std::vector<int> shards, keepers;
    for (const GroupedParameters& group : plan_.grouped()) {
      const bool resident = facts_of(group, facts, sharded).resident;
      const GroupAxes<Comm>& on = axes.emplace_back(mesh_.axes_of(resident, facts, problem()));
      shards.push_back(GroupAxes<Comm>::size(on.shard));
      keepers.push_back(on.keep == nullptr ? 0 : on.keep->size());
    }
    const std::vector<buffer::TensorGroup> specs = specs_of(plan_.grouped(), shape_.step_work);
    auto layouts = buffer::build_layouts(layout, specs, shards);
    auto kept = buffer::build_layouts(layout, specs, keepers);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      GroupedParameters& group = plan_.grouped()[i];
      const sharding::GroupFacts own = facts_of(group, facts, sharded);
      layouts[i].cut_across(GroupAxes<Comm>::size(axes[i].across));
      groups_.emplace_back(std::move(group.parameters), static_cast<int>(i), axes[i], own, std::move(layouts[i]),
                           std::move(kept[i]));
      plan_.add(groups_.back().facts());
    }
  }

  /// Elements of every group's buffers at rest, one group after the other.
  struct Sizes {
    std::int64_t main = 0, model = 0, gradient = 0, kept = 0;
    void add(const Group& group) {
      main += group.main_size();
      model += group.model_size();
      gradient += group.facts().trainable ? group.model_size() : 0;
      kept += group.kept_size();
    }
  };

  void allocate() {
    Sizes all;
    bool reduces_across = false;  // if so, other ranks read the gradients at rest
    for (const Group& group : groups_) {
      all.add(group);
      reduces_across = reduces_across || group.axes().across != nullptr;
    }
    const bool trains = purpose_ == Purpose::train;
    Main* main = nullptr;
    if constexpr (Group::offloaded)
      main = reinterpret_cast<Main*>(
          offload_blocks_.emplace_back(offload_ledger_, Kind::weights, bytes_of<Main>(all.main)).data());
    else if constexpr (!Group::one_copy)
      main = keep<Main>(Kind::weights, all.main, false);
    Compute* const model = keep<Compute>(Kind::weights, all.model, true);
    Accumulate* const gradient = trains ? keep<Accumulate>(Kind::gradients, all.gradient, reduces_across) : nullptr;
    Compute* const kept = trains && all.kept > 0 ? keep<Compute>(Kind::weights, all.kept, true) : nullptr;
    place(main, model, gradient, kept);
    allocate_slots();
  }

  /// Gives every group its part of each block, one group after the other. A block that nobody needs is null.
  void place(Main* main, Compute* model, Accumulate* gradient, Compute* kept) {
    const auto part = []<class T>(T* block, std::int64_t at) { return block == nullptr ? nullptr : block + at; };
    Sizes at;
    for (Group& group : groups_) {
      group.place(part(main, at.main), part(model, at.model),
                  group.facts().trainable ? part(gradient, at.gradient) : nullptr, part(kept, at.kept));
      list_pieces(group);
      at.add(group);
      if (group.facts().resident) group.unshard({});
    }
  }

  void allocate_slots() {
    const auto make_slots = [&]<class T>(std::vector<Slot<T, Device>>& slots, const std::vector<std::int64_t>& sizes,
                                         Kind kind) {
      for (const std::int64_t size : sizes) {
        slots.push_back({size == 0 ? nullptr : keep<T>(kind, size, kind == Kind::gradients), size});
        slots.back().close();
      }
    };
    make_slots(weight_slots_, plan_.slots().weights, Kind::gathered);
    make_slots(gradient_slots_, plan_.slots().gradients, Kind::gradients);
  }

  template <class T>
  static std::int64_t bytes_of(std::int64_t elements) {
    return checked_multiply(elements, static_cast<std::int64_t>(sizeof(T)));
  }
  /// Allocates a block. Blocks that collectives of other ranks read (gathered weights, reduced gradients) lie in the
  /// communicator's shared memory. Others do not, since ordinary memory may have larger pages.
  template <class T>
  T* keep(Kind kind, std::int64_t elements, bool read_by_peers) {
    const std::int64_t bytes = bytes_of<T>(elements);
    blocks_.emplace_back(ledger_, kind, bytes, read_by_peers ? comm::shared_memory(mesh_.world(), bytes) : nullptr);
    return reinterpret_cast<T*>(blocks_.back().data());
  }

  void list_pieces(const Group& group) {
    const bool trains = group.facts().trainable;
    for (const buffer::Piece& part : group.model_part().pieces()) {
      Piece piece{.parameter = &group.parameters()[static_cast<std::size_t>(part.tensor)],
                  .begin = part.begin,
                  .main = group.has_main() ? group.main().piece(part) : Tensor<Main>(),
                  .model = group.model_part().piece(part),
                  .gradient = {},
                  .resting = trained_size_ + part.local,
                  .trainable = trains,
                  .owned = group.owns()};
      if (purpose_ == Purpose::train && trains) piece.gradient = group.main_gradient().piece(part);
      pieces_.push_back(piece);
    }
    if (trains) trained_size_ += group.main_size();
  }

  StackMesh<Stack> mesh_;
  Model model_;
  typename Stack::Tiling tiling_;
  RunShape shape_;
  Purpose purpose_;
  device::Ledger ledger_, offload_ledger_;
  typename Device::Arena arena_;
  typename Offload::Arena offload_arena_;
  typename Device::Stream stream_;
  ModulePlan plan_;
  std::vector<Block> blocks_;  // outlive the groups, whose collectives in flight other ranks may be reading
  std::vector<device::Block<Offload>> offload_blocks_;
  std::vector<Group> groups_;
  std::vector<WeightSlot> weight_slots_;
  std::vector<GradientSlot> gradient_slots_;
  std::vector<Piece> pieces_;
  std::int64_t trained_size_ = 0;
};

}  // namespace fsdp

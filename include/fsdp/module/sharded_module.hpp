// SPDX-License-Identifier: Apache-2.0
/// @file
/// Units of named tensors whose weights, gradients and optimizer state are sharded over ranks: their memory, groups and
/// schedules. The module does not know a unit's computation or inputs.
///
/// Memory is planned from the schedules and allocated in the constructor; a step allocates no tensor memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/mesh.hpp>
#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/module/any_group.hpp>
#include <tessera/fsdp/module/module_plan.hpp>
#include <tessera/fsdp/module/parameter_group.hpp>
#include <tessera/fsdp/module/stack_mesh.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp {

/// The memory of a module: its groups, their buffers at rest, slots and arena. The part of ShardedModule that does not
/// depend on the strategy: all stacks with the same `Types` (ModuleTypes) share its code.
template <class Types>
class ModuleMemory : public ModuleState {
 public:
  using Device = typename Types::Device;
  using Comm = typename Types::Comm;
  using Groups = std::vector<AnyGroup<Types>>;
  using Group = FirstGroup<Types>;
  using Main = typename Group::Main;
  using Compute = typename Group::Compute;
  using Accumulate = typename Group::Accumulate;
  using Offload = device::HostOffload<Device>;
  using ParameterShard = fsdp::ParameterShard<Main, Compute, Accumulate, ViewOf<typename Types::Precision>>;

  ModuleMemory(const ModuleMemory&) = delete;
  ModuleMemory& operator=(const ModuleMemory&) = delete;

  /// The communicator of all ranks.
  Comm& communicator() const { return mesh_.world(); }
  /// Returns the world's communicator and, if the strategy works on two axes, those of the outer and the inner axis.
  std::vector<Comm*> communicators() { return mesh_.communicators(); }
  /// Whether the strategy works on two axes.
  bool has_groups() const { return mesh_.has_groups(); }
  /// The communicators of its axes.
  StackMesh<Types>& mesh() { return mesh_; }
  /// Traffic of these communicators since their construction, by axis and kind; the difference of two results is the
  /// traffic in between.
  comm::MeshTraffic traffic() { return mesh_.traffic(); }
  /// The module's arena and its compute stream.
  /// @{
  typename Device::Arena& arena() { return arena_; }
  typename Device::Stream& stream() { return stream_; }
  /// @}
  /// Blocks the host until all enqueued work is done. Call it before the host reads what the device wrote.
  void synchronize() { comm::synchronize(mesh_.world(), stream_); }
  /// The ledger that counts this rank's tensor memory on the device.
  device::Ledger& ledger() { return ledger_; }
  /// The ledger that counts main weights and optimizer state offloaded to host memory.
  device::Ledger& offload_ledger() { return offload_ledger_; }
  /// The groups, in the order of sharding::Problem::groups (with_group).
  /// @{
  Groups& groups() { return groups_; }
  const Groups& groups() const { return groups_; }
  /// @}
  /// Returns the bytes of tensor memory by kind. Activations and scratch are counted at their common peak; scratch
  /// includes the scratch memory of the communicators.
  device::BytesByKind peak_bytes() const;

  /// All shards that this rank stores at rest. Gradients exist only in training.
  const std::vector<ParameterShard>& shards() const { return shards_; }
  /// Whether the last training pass computed the shard's gradient, so that a step changes the shard.
  bool is_stepped(const ParameterShard& shard) const { return shard.trainable && steps_class(step_class(shard)); }
  using ModuleState::step_class;
  /// Returns the class of a shard's group; see ModuleState.
  int step_class(const ParameterShard& shard) const { return step_class(shard.group); }

  /// Whether ranks exchange the contributions to sums, and add them up themselves: in a fixed order, or because the
  /// wire has 16 bits.
  bool exchanges_sums() const { return step_pieces() > 0 || !std::is_same_v<typename Types::Precision::Reduce, float>; }

  /// Rounds the main weights into the model weights. Call it on all ranks after weights were set from outside.
  /// `were_set(name)` returns whether a parameter was set, the same on all ranks. Passes can begin only when every
  /// parameter has values.
  void sync_model_weights(FunctionRef<bool(const std::string&)> were_set);
  /// The same after all weights were set.
  void sync_model_weights() {
    sync_model_weights([](const std::string&) { return true; });
  }

  /// The slots of the placed schedules, by number.
  /// @{
  Slot<Device>& weight_slot(int index) { return weight_slots_[static_cast<std::size_t>(index)]; }
  Slot<Device>& gradient_slot(int index) { return gradient_slots_[static_cast<std::size_t>(index)]; }
  /// @}
  /// Marks all slots as free after `event`, which must follow all uses of them so far.
  void free_slots(const typename Device::Event& event) {
    for (auto& slot : weight_slots_) slot.free = event;
    for (auto& slot : gradient_slots_) slot.free = event;
  }

  /// Closes all slots, including slots in use.
  void close_slots() {
    for (const auto& slot : weight_slots_) slot.close();
    for (const auto& slot : gradient_slots_) slot.close();
  }

  /// Allocates zeroed memory for a purpose; uses the memory that the host program lends for it, if any.
  device::Block<Device> block_of(device::MemoryKind kind, std::int64_t bytes) {
    return device::Block<Device>(ledger_, kind, bytes, lent(kind, bytes));
  }

 protected:
  /// See ShardedModule.
  ModuleMemory(StackMesh<Types> mesh, std::span<const Unit> units, ModuleSettings settings,
               const StrategyCalls& strategy);
  /// Ends the run on the module's communicators, after the last collective: see Communicator's end_run.
  ~ModuleMemory();

 private:
  using Kind = device::MemoryKind;
  using Block = device::Block<Device>;

  void collect_groups();
  /// Returns the layouts of groups, by the layout policies of their strategies.
  std::vector<buffer::Layout> layouts_of(std::span<const buffer::TensorGroup> groups, std::span<const int> ranks);

  /// Bytes of the buffers at rest, summed over groups. Model weights of groups with different types are aligned.
  struct Sizes {
    std::int64_t main = 0, model = 0, gradient = 0, kept = 0;
    void add(const auto& group) {
      main += group.main_bytes();
      model += aligned(group.model_bytes());
      gradient += group.gradient_bytes();
      kept += aligned(group.kept_bytes());
    }
    static std::int64_t aligned(std::int64_t bytes) {
      return std::is_same_v<AnyGroup<Types>, Group> ? bytes : round_up(bytes, device::alignment);
    }
  };

  /// Allocates the slots and the blocks at rest, of which each group gets its consecutive part.
  void allocate();

  /// Allocates a block. Blocks that collectives of other ranks read (gathered weights, reduced gradients) are allocated
  /// in the communicator's shared memory. Other blocks are not, since ordinary memory may have larger pages. A backend
  /// that registers memory needs both sides of a collective: it gets all blocks of the collectives on `axes`, unless
  /// the host program lends memory.
  std::byte* keep(Kind kind, std::int64_t bytes, bool read_by_peers, const std::vector<Comm*>& axes = {});
  template <class G>
  void list_shards(const G& group, int index);
  static void add_axis(std::vector<Comm*>& axes, Comm* axis) {
    if (GroupAxes<Comm>::size(axis) > 1 && std::ranges::find(axes, axis) == axes.end()) axes.push_back(axis);
  }

  StackMesh<Types> mesh_;
  std::vector<Comm*> gathers_on_, reduces_on_;  ///< communicators that move weights, and gradients
  device::Ledger ledger_, offload_ledger_;
  typename Device::Arena arena_;
  typename Device::Stream stream_;
  std::vector<Block> blocks_;  // must outlive the groups: other ranks may read them in collectives in flight
  device::Block<Offload> offload_block_;
  Groups groups_;
  std::vector<Slot<Device>> weight_slots_, gradient_slots_;
  std::vector<ParameterShard> shards_;
};

template <class Types>
ModuleMemory<Types>::ModuleMemory(StackMesh<Types> mesh, std::span<const Unit> units, ModuleSettings settings,
                                  const StrategyCalls& strategy)
    : ModuleState(units, std::move(settings), strategy, mesh.axes(strategy),
                  {.rank = mesh.world().rank(),
                   .ranks = mesh.world().size(),
                   .overlaps = Device::overlaps,
                   .counts_only = Device::counts_only}),
      mesh_(std::move(mesh)),
      stream_(arena_, this->settings().threads) {
  collect_groups();
  plan().make_schedules();
  if constexpr (!Device::counts_only) plan().require_same(mesh_.world());
  mesh_.share_sequences(this->settings().passes.ranks_per_sequence);  // only after all ranks agreed on the number
  arena_ = Device::Arena::planned(ledger_, this->settings().arena_bytes);
  allocate();
}

template <class Types>
ModuleMemory<Types>::~ModuleMemory() {
  groups_.clear();  // waits for collectives that are in flight after an exception
  mesh_.end_run();
}

template <class Types>
device::BytesByKind ModuleMemory<Types>::peak_bytes() const {
  device::BytesByKind bytes = ledger_.current();
  bytes[static_cast<std::size_t>(device::MemoryKind::activations)] = arena_.peak() - arena_.peak_scratch();
  bytes[static_cast<std::size_t>(device::MemoryKind::scratch)] += arena_.peak_scratch() + mesh_.scratch_bytes();
  return bytes;
}

template <class Types>
void ModuleMemory<Types>::sync_model_weights(FunctionRef<bool(const std::string&)> were_set) {
  give_values(were_set);
  if constexpr (!Group::one_copy)
    for (const ParameterShard& shard : shards_)
      if (shard.has_main())
        with_view(shard.model, [&]<class T>(const Tensor<T>& model) {
          if (static_cast<const void*>(model.data()) != shard.main.data())
            device::enqueue(stream_, device::Copy<Main, T>{.x = Tensor<const Main>(shard.main), .y = model});
        });
}

template <class Types>
void ModuleMemory<Types>::collect_groups() {
  const bool in_order = plan().strategy().facts.sums_in_order();
  const bool exchanges = settings().passes.purpose == Purpose::train && exchanges_sums();
  std::vector<GroupAxes<Comm>> axes;
  std::vector<int> shards, keepers, across;
  for (const GroupedParameters& group : plan().grouped()) {
    require<InputError>(!group.is_float || has_float_weights<typename Types::Precision>, "precision: ", group.name,
                        " is to be float (UnitOptions::precision), and the stack's precision has one type for all ",
                        "weights; make it PrecisionBy<Fp32, ...>, or leave the patterns out");
    const GroupAxes<Comm>& on =
        axes.emplace_back(mesh_.axes_of(plan().facts_of(group), plan().part_of(group), in_order));
    const int summed = std::max(GroupAxes<Comm>::size(on.reduce), GroupAxes<Comm>::size(on.across));
    require<InputError>(!exchanges || summed <= device::most_parts<Device>, "sharding: with pieces or a wire in ",
                        "16 bits, a rank adds the gradients of all ", summed, " ranks in their order, and its device ",
                        "adds those of at most ", device::most_parts<Device>, "; take neither, or hybrid:K with ",
                        "fewer ranks in a group and fewer groups");
    shards.push_back(GroupAxes<Comm>::size(on.shard));
    across.push_back(GroupAxes<Comm>::size(on.across));
    keepers.push_back(on.keep == nullptr ? 0 : on.keep->size());
    add_axis(gathers_on_, on.shard);
    add_axis(gathers_on_, on.keep);
    if (plan().part_of(group).shards_across) add_axis(gathers_on_, on.across);
    // Sums that are not the backend's own go through its staging memory.
    if ((group.is_float || std::is_same_v<typename Group::Wire, float>)&&!in_order) add_axis(reduces_on_, on.reduce);
    add_axis(reduces_on_, on.across);
  }
  const std::vector<buffer::TensorGroup> specs = specs_of(plan().grouped(), settings().step_work, in_order);
  auto layouts = layouts_of(specs, shards);
  auto kept = layouts_of(specs, keepers);
  buffer::cut_across(layouts, across);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    GroupedParameters& group = plan().grouped()[i];
    const sharding::GroupFacts own = plan().facts_of(group);
    add_group(groups_, group.is_float, group.gathered && plan().part_of(group).shards_across,
              std::move(group.parameters), static_cast<int>(i), axes[i], own, std::move(layouts[i]), std::move(kept[i]),
              in_order ? comm::SumOrder::ranks : comm::SumOrder::any);
    with_group(groups_.back(), [&](const auto& made) {
      this->plan().add(made.facts(), Device::counts_only ? 0 : made.digest_of_layouts());
    });
  }
}

template <class Types>
std::vector<buffer::Layout> ModuleMemory<Types>::layouts_of(std::span<const buffer::TensorGroup> groups,
                                                            std::span<const int> ranks) {
  std::vector<buffer::Layout> layouts(groups.size());
  for (std::size_t part = 0; part < parts().size(); ++part) {
    std::vector<int> own(ranks.begin(), ranks.end());
    for (std::size_t i = 0; i < own.size(); ++i)
      if (plan().grouped()[i].part != part) own[i] = 0;
    if (std::ranges::all_of(own, [](int count) { return count == 0; })) continue;
    auto made = parts()[part].build_layouts(groups, own);
    for (std::size_t i = 0; i < own.size(); ++i)
      if (own[i] != 0) layouts[i] = std::move(made[i]);
  }
  return layouts;
}

template <class Types>
void ModuleMemory<Types>::allocate() {
  Sizes all;
  bool reduces_across = false;  // if true, other ranks read the gradients at rest
  for (const auto& any : groups_)
    with_group(any, [&](const auto& group) {
      this->group_list_.push_back(&group);
      all.add(group);
      reduces_across = reduces_across || group.axes().across != nullptr;
    });
  const bool trains = settings().passes.purpose == Purpose::train;
  std::byte* main = nullptr;
  if constexpr (Group::offloaded) {
    offload_block_ = device::Block<Offload>(offload_ledger_, Kind::weights, all.main);
    main = offload_block_.data();
  } else if constexpr (!Group::one_copy) {
    main = keep(Kind::weights, all.main, false);
  }
  std::byte* const model = keep(Kind::weights, all.model, true, gathers_on_);
  std::byte* const gradient = trains ? keep(Kind::gradients, all.gradient, reduces_across, reduces_on_) : nullptr;
  std::byte* const kept = trains && all.kept > 0 ? keep(Kind::weights, all.kept, true, gathers_on_) : nullptr;
  const auto part = [](std::byte* block, std::int64_t at) { return block == nullptr ? nullptr : block + at; };
  Sizes at;
  int index = 0;
  for (auto& any : groups_)
    with_group(any, [&](auto& group) {
      group.use_memory(part(main, at.main), part(model, at.model), part(gradient, at.gradient), part(kept, at.kept));
      this->list_shards(group, index++);
      at.add(group);
      if (group.facts().resident) group.unshard({});
    });
  const auto make_slots = [&](std::vector<Slot<Device>>& slots, const std::vector<std::int64_t>& sizes, Kind kind) {
    for (const std::int64_t size : sizes) {
      const bool gradients = kind == Kind::gradients;
      slots.push_back({size == 0 ? nullptr : keep(kind, size, gradients, gradients ? reduces_on_ : gathers_on_), size});
      slots.back().close();
    }
  };
  make_slots(weight_slots_, plan().slots().weights, Kind::gathered);
  make_slots(gradient_slots_, plan().slots().gradients, Kind::gradients);
}

template <class Types>
template <class G>
void ModuleMemory<Types>::list_shards(const G& group, int index) {
  const bool trains = group.facts().trainable;
  for (const buffer::TensorRange& part : group.model_part().ranges()) {
    ParameterShard shard{.parameter = &group.parameters()[static_cast<std::size_t>(part.tensor)],
                         .group = index,
                         .begin = part.begin,
                         .main = group.has_main() ? group.main().range(part) : Tensor<Main>(),
                         .model = group.model_part().range(part),
                         .gradient = {},
                         .resting = trained_size() + part.local,
                         .trainable = trains,
                         .owned = group.owns()};
    if (settings().passes.purpose == Purpose::train && trains) shard.gradient = group.main_gradient().range(part);
    shards_.push_back(shard);
  }
  if (trains) this->trained_size_ += group.main_size();
}

template <class Types>
std::byte* ModuleMemory<Types>::keep(Kind kind, std::int64_t bytes, bool read_by_peers,
                                     const std::vector<Comm*>& axes) {
  std::shared_ptr<std::byte> memory;
  if constexpr (requires(Comm & axis) { axis.register_memory(memory, bytes); }) {
    if (!settings().lend)
      for (Comm* const axis : axes)
        memory = memory == nullptr ? comm::shared_memory(*axis, bytes) : axis->register_memory(memory, bytes);
  } else if (read_by_peers) {
    memory = comm::shared_memory(mesh_.world(), bytes);
  }
  blocks_.push_back(Block(ledger_, kind, bytes, memory == nullptr ? lent(kind, bytes) : memory));
  return blocks_.back().data();
}

/// This rank's part of sharded units: the buffers at rest, slots for gathered weights and gradients, an arena, and the
/// schedules of the passes. Pass runs the schedules.
template <class StackT>
class ShardedModule : public ModuleMemory<TypesOf<StackT>> {
  using Memory = ModuleMemory<TypesOf<StackT>>;

 public:
  using Stack = StackT;
  using Comm = typename Stack::Comm;

  /// `communicator` must outlive the module. Weights are zero until they are initialised or loaded. Collective. Throws
  /// InputError on all ranks if units, orders and strategy do not fit together or differ between ranks.
  ShardedModule(Comm& communicator, std::span<const Unit> units, const typename Stack::Sharding& sharding,
                ModuleSettings settings)
      : Memory({communicator, calls_of(sharding)}, units, std::move(settings), calls_of(sharding)) {}

  /// The same on an existing mesh, which must have as many axes as the strategy works on.
  template <int axes>
  ShardedModule(comm::Mesh<Comm, axes> mesh, std::span<const Unit> units, const typename Stack::Sharding& sharding,
                ModuleSettings settings)
      : Memory(StackMesh<TypesOf<Stack>>(std::move(mesh)), units, std::move(settings), calls_of(sharding)) {}
};

}  // namespace fsdp

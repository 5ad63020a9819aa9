// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model whose weights, gradients and optimizer state are sharded over ranks: memory, groups, and the steps it can
/// run.
///
/// A model is an entry module that reads tokens, a list of equal blocks, and a loss module (see models/llama.hpp).
/// Memory is planned from the schedule and allocated in the constructor; a step allocates no tensor memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <comm/collectives.hpp>
#include <comm/mesh.hpp>
#include <fsdp/core/tensor.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/device/offload.hpp>
#include <fsdp/device/operations/elements.hpp>
#include <fsdp/module/micro_batch.hpp>
#include <fsdp/module/parameter_group.hpp>
#include <fsdp/module/slot.hpp>
#include <fsdp/module/stack_mesh.hpp>
#include <fsdp/module/units.hpp>
#include <fsdp/nn/module.hpp>
#include <fsdp/sharding/scheduler.hpp>
#include <fsdp/sharding/slots.hpp>

namespace fsdp {

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

  /// `communicator` must outlive the module. Weights are zero until `initialize`d or loaded.
  ShardedModule(Comm& communicator, Model model, typename Stack::Sharding sharding, typename Stack::Tiling tiling,
                const RunShape& shape, Purpose purpose = Purpose::train)
      : ShardedModule(StackMesh<Stack>(communicator, sharding), std::move(model), sharding, tiling, shape, purpose) {}

  /// On a mesh of as many axes as the strategy works on.
  template <int axes>
  ShardedModule(comm::Mesh<Comm, axes> mesh, Model model, typename Stack::Sharding sharding,
                typename Stack::Tiling tiling, const RunShape& shape, Purpose purpose = Purpose::train)
      : ShardedModule(StackMesh<Stack>(std::move(mesh)), std::move(model), sharding, tiling, shape, purpose) {}

  ShardedModule(const ShardedModule&) = delete;
  ShardedModule& operator=(const ShardedModule&) = delete;

  Comm& communicator() const { return mesh_.world(); }
  /// The world and, where the strategy works on two axes, the outer and the inner one.
  std::vector<Comm*> communicators() { return mesh_.communicators(); }
  const Model& model() const { return model_; }
  const RunShape& shape() const { return shape_; }
  const typename Stack::Tiling& tiling() const { return tiling_; }
  typename Device::Arena& arena() { return arena_; }
  typename Device::Stream& stream() { return stream_; }
  /// The host waits until all that was queued is done; before it reads what the device wrote.
  void synchronize() { comm::synchronize(mesh_.world(), stream_); }
  device::Ledger& ledger() { return ledger_; }
  /// Counts what lives in host memory, activations apart.
  device::Ledger& offload_ledger() { return offload_ledger_; }
  typename Offload::Arena& offload_arena() { return offload_arena_; }
  /// Peak of tensor memory in host memory.
  std::int64_t offloaded_bytes() const {
    return offload_ledger_.peak() + (Device::counts_only ? offload_arena_.peak() : 0);
  }
  std::vector<Group>& groups() { return groups_; }
  const std::vector<Group>& groups() const { return groups_; }
  const sharding::Schedule& schedule(sharding::Pass pass) const {
    return pass == sharding::Pass::train ? training_ : evaluation_;
  }
  const std::vector<sharding::UnitUse>& uses() const { return uses_; }
  const std::vector<sharding::GroupRules>& group_rules() const { return group_rules_; }
  /// The lowest unit that has a backward: what stands before it needs nothing saved.
  int first_backward() const { return first_backward_; }

  /// Tensor memory by kind; what activations and scratch were at their common peak, with the communicators' scratch.
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
    Tensor<Main> main;
    Tensor<Compute> model;  ///< the same memory as `main` where the types agree
    Tensor<const Accumulate> gradient;
    std::int64_t resting = 0;  ///< where it starts among all that is trained here: the index into optimizer state
    bool trainable = true;
    bool owned = true;  ///< of replicas, one rank owns a piece: it writes files and counts in norms
  };

  /// Everything this rank holds at rest; evaluation has no gradients.
  const std::vector<Piece>& pieces() const { return pieces_; }
  /// Elements that are trained on this rank, padding included.
  std::int64_t trained_size() const { return trained_size_; }

  /// Rounds the main weights into the model weights; after they were set from outside.
  void sync_model_weights() {
    if constexpr (!Group::one_copy)
      for (const Piece& piece : pieces_)
        device::enqueue(stream_, device::Copy<Main, Compute>{.x = Tensor<const Main>(piece.main), .y = piece.model});
  }

  /// Names of units and groups, for people.
  std::vector<std::string> unit_names() const {
    std::vector<std::string> names;
    const int units = static_cast<int>(uses_.size());
    for (int unit = 0; unit < units; ++unit) names.push_back(unit_name(unit, units));
    return names;
  }
  const std::vector<std::string>& group_names() const { return group_names_; }

  Slot<Compute, Device>& weight_slot(int index) { return weight_slots_[static_cast<std::size_t>(index)]; }
  Slot<Accumulate, Device>& gradient_slot(int index) { return gradient_slots_[static_cast<std::size_t>(index)]; }
  /// All slots are free after `event`, which is later than all uses of them so far.
  void free_slots(const typename Device::Event& event) {
    for (auto& slot : weight_slots_) slot.free = event;
    for (auto& slot : gradient_slots_) slot.free = event;
  }

  /// Which tensor of which group a unit's i-th parameter is.
  const std::vector<Reference>& references(int unit) const { return references_[static_cast<std::size_t>(unit)]; }

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
        arena_(Device::Arena::planned(ledger_, shape.activation_bytes)),
        offload_arena_(Offload::Arena::planned(offload_ledger_, shape.offloaded_activation_bytes)),
        stream_(arena_, shape.threads),
        rules_(settled(sharding.rules())) {
    collect_groups();
    if (purpose == Purpose::train)
      training_ = sharding::make_schedule(rules_, uses_, group_rules_, shape.micro_batches);
    evaluation_ = sharding::make_schedule(rules_, uses_, group_rules_, 1, sharding::Pass::evaluate);
    if (purpose == Purpose::generate)
      std::erase_if(evaluation_,
                    [](const sharding::Event& event) { return event.action == sharding::Action::release; });
    first_backward_ = sharding::first_backward(uses_, group_rules_);
    allocate();
  }

  sharding::Rules settled(sharding::Rules rules) const {
    rules = mesh_.settled(rules);
    if (purpose_ == Purpose::generate && rules.hold != sharding::Hold::always) rules.hold = sharding::Hold::step;
    rules.keep_last_block = model_.units().keep_last_block;
    return rules;
  }

  void collect_groups() {
    std::vector<std::vector<NamedParameter>> units;
    const auto add_unit = [&](const auto& module, const std::string& prefix) {
      std::vector<NamedParameter> list;
      for (const nn::Parameter& parameter : nn::flatten(module.parameters()))
        list.push_back({parameter.name[0] == '/' ? std::string(parameter.name + 1) : prefix + parameter.name,
                        parameter.shape, parameter.initial});
      units.push_back(std::move(list));
    };
    add_unit(model_.entry(), "");
    for (int i = 0; i < model_.blocks(); ++i) add_unit(model_.block(), model_.prefix(i));
    add_unit(model_.head(), "");

    UnitGroups unit_groups = group_parameters(units, model_.units(), rules_.persistence_threshold);
    uses_ = std::move(unit_groups.uses);
    references_ = std::move(unit_groups.references);
    for (GroupedParameters& group : unit_groups.groups) {
      group_names_.push_back(group.name);
      group_rules_.push_back(rules_of(group, rules_));
      const GroupAxes<Comm> axes = mesh_.axes_of(group.replicated, rules_);
      groups_.emplace_back(std::move(group.parameters), static_cast<int>(groups_.size()), axes, group_rules_.back());
    }
  }

  /// Elements of every group's buffers at rest, one group after the other.
  struct Sizes {
    std::int64_t main = 0, model = 0, gradient = 0, kept = 0;
    void add(const Group& group) {
      main += group.main_size();
      model += group.model_size();
      gradient += group.rules().trainable ? group.model_size() : 0;
      kept += group.kept_size();
    }
  };

  void allocate() {
    Sizes all;
    bool reduces_across = false;  // then gradients at rest are read by other ranks
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

  /// One group after the other in each block; there is no block of what nobody needs.
  void place(Main* main, Compute* model, Accumulate* gradient, Compute* kept) {
    const auto part = []<class T>(T* block, std::int64_t at) { return block == nullptr ? nullptr : block + at; };
    Sizes at;
    for (Group& group : groups_) {
      group.place(part(main, at.main), part(model, at.model),
                  group.rules().trainable ? part(gradient, at.gradient) : nullptr, part(kept, at.kept));
      list_pieces(group);
      at.add(group);
      if (group.rules().hold == sharding::Hold::always) group.unshard({});
    }
  }

  void allocate_slots() {
    std::vector<std::int64_t> full_sizes;
    for (const Group& group : groups_) full_sizes.push_back(group.in_place() ? 0 : group.layout().full_size);
    sharding::Schedule both = training_;
    both.insert(both.end(), evaluation_.begin(), evaluation_.end());
    const auto make_slots = [&]<class T>(std::vector<Slot<T, Device>>& slots, const std::vector<std::int64_t>& sizes,
                                         Kind kind) {
      for (const std::int64_t size : sizes) {
        slots.push_back({size == 0 ? nullptr : keep<T>(kind, size, kind == Kind::gradients), size});
        slots.back().close();
      }
    };
    make_slots(weight_slots_, sharding::weight_slots(both, full_sizes).sizes, Kind::gathered);
    if (purpose_ == Purpose::train)
      make_slots(gradient_slots_,
                 sharding::gradient_slots(training_, uses_, group_rules_, full_sizes, Device::overlaps).sizes(),
                 Kind::gradients);
  }

  template <class T>
  static std::int64_t bytes_of(std::int64_t elements) {
    return checked_multiply(elements, static_cast<std::int64_t>(sizeof(T)));
  }
  /// A block of its own; in the communicator's shared memory where collectives let other ranks read it: the weights
  /// that are gathered and the gradients that are reduced. Nothing else, since pages of other memory may be larger.
  template <class T>
  T* keep(Kind kind, std::int64_t elements, bool read_by_peers) {
    const std::int64_t bytes = bytes_of<T>(elements);
    blocks_.emplace_back(ledger_, kind, bytes, read_by_peers ? comm::shared_memory(mesh_.world(), bytes) : nullptr);
    return reinterpret_cast<T*>(blocks_.back().data());
  }

  void list_pieces(const Group& group) {
    const bool trains = group.rules().trainable;
    for (const buffer::Piece& part : group.main().pieces()) {
      Piece piece{.parameter = &group.parameters()[static_cast<std::size_t>(part.tensor)],
                  .begin = part.begin,
                  .main = group.main().piece(part),
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
  sharding::Rules rules_;
  sharding::Schedule training_;
  sharding::Schedule evaluation_;
  std::vector<sharding::UnitUse> uses_;
  std::vector<std::vector<Reference>> references_;
  std::vector<sharding::GroupRules> group_rules_;
  std::vector<std::string> group_names_;
  std::vector<Block> blocks_;  // outlive the groups, whose collectives in flight other ranks may be reading
  std::vector<device::Block<Offload>> offload_blocks_;
  std::vector<Group> groups_;
  std::vector<Slot<Compute, Device>> weight_slots_;
  std::vector<Slot<Accumulate, Device>> gradient_slots_;
  std::vector<Piece> pieces_;
  std::int64_t trained_size_ = 0;
  int first_backward_ = 0;
};

}  // namespace fsdp

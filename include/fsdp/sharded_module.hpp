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
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/nn/module.hpp>
#include <fsdp/parameter_group.hpp>
#include <fsdp/sharding/schedule.hpp>
#include <fsdp/sharding/slots.hpp>

namespace fsdp {

/// Tokens of one micro-batch on one rank; sequences of equal length, one after the other. A negative target is ignored.
struct MicroBatch {
  Tensor<const std::int32_t> tokens;   // [sequences * S]
  Tensor<const std::int32_t> targets;  // [sequences * S]
  std::int64_t sequences = 0;
};

/// What a ShardedModule is planned for; nothing larger may run on it.
struct RunShape {
  std::int64_t sequence_length = 0;
  int micro_batches = 1;
  int threads = 1;
  std::int64_t activation_bytes = 0;  ///< the arena, from the dry run; ignored where the device only counts
};

/// What a ShardedModule is for. Generating gathers every weight once and keeps it.
enum class Purpose : std::uint8_t { train, evaluate, generate };

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

  /// `communicator` must outlive the module. Weights are zero until `initialize`d or loaded.
  ShardedModule(Comm& communicator, Model model, typename Stack::Sharding sharding, typename Stack::Tiling tiling,
                const RunShape& shape, Purpose purpose = Purpose::train)
      : communicator_(&communicator),
        model_(std::move(model)),
        tiling_(tiling),
        shape_(shape),
        purpose_(purpose),
        arena_(make_arena(shape)),
        stream_(arena_, shape.threads) {
    collect_groups();
    rules_ = sharding.rules();
    if (purpose == Purpose::generate && rules_.hold != sharding::Hold::always) rules_.hold = sharding::Hold::step;
    if (purpose == Purpose::train) training_ = sharding::make_schedule(rules_, uses_, shape.micro_batches);
    evaluation_ = sharding::make_schedule(rules_, uses_, 1, sharding::Pass::evaluate);
    if (purpose == Purpose::generate)
      std::erase_if(evaluation_,
                    [](const sharding::Event& event) { return event.action == sharding::Action::release; });
    allocate();
  }
  ShardedModule(const ShardedModule&) = delete;
  ShardedModule& operator=(const ShardedModule&) = delete;

  Comm& communicator() const { return *communicator_; }
  const Model& model() const { return model_; }
  const RunShape& shape() const { return shape_; }
  const typename Stack::Tiling& tiling() const { return tiling_; }
  typename Device::Arena& arena() { return arena_; }
  typename Device::Stream& stream() { return stream_; }
  device::Ledger& ledger() { return ledger_; }
  std::vector<Group>& groups() { return groups_; }
  const std::vector<Group>& groups() const { return groups_; }
  const sharding::Schedule& schedule(sharding::Pass pass) const {
    return pass == sharding::Pass::train ? training_ : evaluation_;
  }
  const std::vector<sharding::UnitUse>& uses() const { return uses_; }

  /// Tensor memory by kind; what activations and scratch were at their common peak, with the communicator's scratch.
  device::BytesByKind peak_bytes() const {
    device::BytesByKind bytes = ledger_.current();
    bytes[static_cast<std::size_t>(device::MemoryKind::activations)] = arena_.peak() - arena_.peak_scratch();
    bytes[static_cast<std::size_t>(device::MemoryKind::scratch)] =
        arena_.peak_scratch() + communicator_->scratch_bytes();
    return bytes;
  }

  /// A part of a parameter that this rank holds; the views are into the buffers at rest.
  struct Piece {
    const NamedParameter* parameter = nullptr;
    std::int64_t begin = 0;  ///< first element, in the whole tensor
    Tensor<Main> main;
    Tensor<Compute> model;  ///< the same memory as `main` where the types agree
    Tensor<const Accumulate> gradient;
    std::int64_t resting = 0;  ///< where it starts among all that this rank holds: the index into optimizer state
  };

  /// Everything this rank holds at rest; evaluation has no gradients.
  const std::vector<Piece>& pieces() const { return pieces_; }
  /// Elements of all buffers at rest, padding included.
  std::int64_t resting_size() const { return resting_size_; }

  /// Rounds the main weights into the model weights; after they were set from outside.
  void sync_model_weights() {
    if constexpr (!Group::one_copy)
      for (const Piece& piece : pieces_)
        Device::template copy<Main, Compute>(stream_, Tensor<const Main>(piece.main), piece.model);
  }

  /// Names of units and groups, for people.
  std::vector<std::string> unit_names() const {
    std::vector<std::string> names{"embedding"};
    for (int i = 0; i < model_.blocks(); ++i) names.push_back("block " + std::to_string(i));
    names.push_back("head");
    return names;
  }
  std::vector<std::string> group_names() const {
    std::vector<std::string> names = unit_names();
    for (std::size_t i = names.size(); i < groups_.size(); ++i) names.push_back(groups_[i].parameters().front().name);
    return names;
  }

  /// Memory that groups take turns in; nullptr where a group's buffer at rest serves.
  template <class T>
  struct Slot {
    T* data = nullptr;
    std::int64_t size = 0;  ///< elements

    /// Makes the slot usable, or unusable (see Device::poison) until it is opened again.
    T* open() const {
      if (data != nullptr) Device::unpoison(reinterpret_cast<std::byte*>(data), bytes());
      return data;
    }
    void close() const {
      if (data != nullptr) Device::poison(reinterpret_cast<std::byte*>(data), bytes());
    }
    std::int64_t bytes() const { return size * static_cast<std::int64_t>(sizeof(T)); }
  };

  const Slot<Compute>& weight_slot(int index) const { return weight_slots_[static_cast<std::size_t>(index)]; }
  const Slot<Accumulate>& gradient_slot(int index) const { return gradient_slots_[static_cast<std::size_t>(index)]; }

  /// Which tensor of which group a unit's i-th parameter is.
  struct Reference {
    int group = 0;
    int index = 0;
  };
  const std::vector<Reference>& references(int unit) const { return references_[static_cast<std::size_t>(unit)]; }

 private:
  using Kind = device::MemoryKind;
  using Block = device::Block<Device>;

  typename Device::Arena make_arena(const RunShape& shape) {
    if constexpr (Device::counts_only)
      return Device::Arena::unbounded();
    else
      return typename Device::Arena(ledger_, shape.activation_bytes);
  }

  /// One group a unit, and after them one for each weight that two units share.
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

    std::map<std::string, int> users;
    for (const auto& unit : units)
      for (const NamedParameter& parameter : unit) ++users[parameter.name];
    std::vector<std::vector<NamedParameter>> lists(units.size());
    std::map<std::string, int> shared;
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
      std::vector<Reference> references;
      sharding::UnitUse use{.groups = {}, .backward_needs_weights = unit != 0};
      for (const NamedParameter& parameter : units[unit]) {
        std::size_t group = unit;
        bool is_new = true;
        if (users[parameter.name] > 1) {
          const auto [place, inserted] = shared.try_emplace(parameter.name, static_cast<int>(lists.size()));
          if (inserted) lists.emplace_back();
          group = static_cast<std::size_t>(place->second);
          is_new = inserted;
        }
        if (is_new) lists[group].push_back(parameter);
        references.push_back({static_cast<int>(group), static_cast<int>(is_new ? lists[group].size() - 1 : 0)});
        if (std::find(use.groups.begin(), use.groups.end(), static_cast<int>(group)) == use.groups.end())
          use.groups.push_back(static_cast<int>(group));
      }
      references_.push_back(std::move(references));
      uses_.push_back(std::move(use));
    }
    for (std::size_t group = 0; group < lists.size(); ++group)
      groups_.emplace_back(std::move(lists[group]), static_cast<int>(group), communicator_->rank(),
                           communicator_->size());
  }

  void allocate() {
    for (const Group& group : groups_) resting_size_ += group.resting_size();
    Main* main = keep<Main>(Kind::weights, resting_size_, Group::one_copy);
    Compute* model = nullptr;
    if constexpr (Group::one_copy)
      model = main;
    else
      model = keep<Compute>(Kind::weights, resting_size_, true);
    Accumulate* gradient =
        purpose_ == Purpose::train ? keep<Accumulate>(Kind::gradients, resting_size_, !Group::sharded) : nullptr;

    std::int64_t offset = 0;
    std::vector<std::int64_t> full_sizes;
    for (Group& group : groups_) {
      group.place(main + offset, model + offset, gradient == nullptr ? nullptr : gradient + offset);
      list_pieces(group, offset);
      offset += group.resting_size();
      full_sizes.push_back(group.in_place() ? 0 : group.layout().full_size);
      if constexpr (!Group::sharded) group.unshard(*communicator_, nullptr);
    }
    sharding::Schedule both = training_;
    both.insert(both.end(), evaluation_.begin(), evaluation_.end());
    const auto make_slots = [&]<class T>(std::vector<Slot<T>>& slots, const std::vector<std::int64_t>& sizes,
                                         Kind kind) {
      for (const std::int64_t size : sizes) {
        slots.push_back({size == 0 ? nullptr : keep<T>(kind, size, kind == Kind::gradients), size});
        slots.back().close();
      }
    };
    make_slots(weight_slots_, sharding::weight_slots(both, full_sizes).sizes, Kind::gathered);
    if (purpose_ == Purpose::train)
      make_slots(gradient_slots_, sharding::gradient_slots(training_, uses_, full_sizes).sizes, Kind::gradients);
  }

  /// A block of its own; in the communicator's shared memory where collectives let other ranks read it: the weights
  /// that are gathered and the gradients that are reduced. Nothing else, since pages of other memory may be larger.
  template <class T>
  T* keep(Kind kind, std::int64_t elements, bool read_by_peers) {
    const std::int64_t bytes = checked_multiply(elements, static_cast<std::int64_t>(sizeof(T)));
    blocks_.emplace_back(ledger_, kind, bytes, read_by_peers ? comm::shared_memory(*communicator_, bytes) : nullptr);
    return reinterpret_cast<T*>(blocks_.back().data());
  }

  void list_pieces(const Group& group, std::int64_t offset) {
    for (const buffer::Piece& part : group.main().pieces()) {
      Piece piece{.parameter = &group.parameters()[static_cast<std::size_t>(part.tensor)],
                  .begin = part.begin,
                  .main = group.main().piece(part),
                  .model = group.model().piece(part),
                  .gradient = {},
                  .resting = offset + part.local};
      if (purpose_ == Purpose::train) piece.gradient = group.main_gradient().piece(part);
      pieces_.push_back(piece);
    }
  }

  Comm* communicator_;
  Model model_;
  typename Stack::Tiling tiling_;
  RunShape shape_;
  Purpose purpose_;
  device::Ledger ledger_;
  typename Device::Arena arena_;
  typename Device::Stream stream_;
  sharding::Rules rules_;
  sharding::Schedule training_;
  sharding::Schedule evaluation_;
  std::vector<sharding::UnitUse> uses_;
  std::vector<std::vector<Reference>> references_;
  std::vector<Group> groups_;
  std::vector<Block> blocks_;
  std::vector<Slot<Compute>> weight_slots_;
  std::vector<Slot<Accumulate>> gradient_slots_;
  std::vector<Piece> pieces_;
  std::int64_t resting_size_ = 0;
};

}  // namespace fsdp

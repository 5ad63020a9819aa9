// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model whose units are sharded: its ShardedModule, the model itself, and the memory of offloaded block inputs; and
/// the choice between whole sequences and sequences that several ranks share.
///
/// A model is an entry module that reads batches, a list of blocks, and a loss module (tessera/fsdp/models/model.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/execution/step_size.hpp>
#include <tessera/fsdp/models/units_of.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>

namespace fsdp {

/// A model with whole sequences: each rank computes its own sequences.
template <class Model>
struct WholeSequencesOf {
  /// A placeholder for the stages of a block's computation, which whole sequences do not have.
  template <class Module>
  struct Stages {
    static constexpr bool possible = false;  ///< stages are never computed
    /// Stores nothing.
    Stages(const Module&, const std::vector<typename Model::Block>&) {}
  };

  /// Returns the model's units.
  static std::vector<Unit> units_of(const Model& model, const RunShape&) { return fsdp::units_of(model); }
  /// Throws InputError for a shape that cuts attention into parts.
  static void check(const Model&, const RunShape& shape, std::int64_t /*ranks*/) {
    check_whole_sequences(shape.size.middle_parts);
  }
  /// Returns the number of parts of attention.
  template <class Tiling>
  static int middle_parts(const Model&, const Tiling&, const RunShape& shape, std::int64_t /*rows*/) {
    return std::max(shape.size.middle_parts, 1);
  }
};

namespace detail {

template <class Model, class Sequence>
struct SequencesOf {
  using Type = WholeSequencesOf<Model>;
};
template <class Model, class Sequence>
requires(Sequence::shards) struct SequencesOf<Model, Sequence> {
  static_assert(
      requires { typename Sequence::template Sharing<Model>; },
      "fsdp: a policy of sequences shards them, and has no template Sharing<Model>, which exchanges their rows; derive "
      "the policy from Ulysses");
  using Type = typename Sequence::template Sharing<Model>;
  static_assert(
      requires { sizeof(Type); },
      "fsdp: several ranks share each sequence of this stack (Ulysses), and what they exchange is compiled only by "
      "those who include it; include <tessera/fsdp/sequence/ulysses.hpp> before the stack's Training or Executor");
};

}  // namespace detail

/// How ranks share the sequences of a model: WholeSequencesOf, or the Sharing of the stack's policy.
template <class Model>
using SequencesOf = typename detail::SequencesOf<Model, typename Model::Stack::Sequence>::Type;

/// A ShardedModule over a model's units, with the model and the memory of offloaded block inputs. Executor
/// runs its passes.
template <class ModelT>
class ShardedModel : public ShardedModule<typename ModelT::Stack::WithoutTiling> {
  using Base = ShardedModule<typename ModelT::Stack::WithoutTiling>;

 public:
  using Model = ModelT;
  using Stack = typename Base::Stack;
  using Local = typename Stack::Local;
  using typename Base::Device;
  using typename Base::Offload;

  /// `world`: the communicator, which must outlive it, or a mesh, which must have as many axes as the strategy uses.
  /// Weights are zero until they are initialised or loaded. Collective.
  template <class World>
  ShardedModel(World&& world, Model model, typename Stack::Sharding sharding, const RunShape& shape,
               Purpose purpose = Purpose::train)
      : Base(std::forward<World>(world), checked_units(model, shape), sharding,
             settings_of(model.units(), shape, purpose)),
        model_(std::move(model)),
        shape_(shape),
        offload_arena_(Offload::Arena::planned(input_ledger_, shape.offloaded_activation_bytes)) {
    SequencesOf<Model>::check(model_, shape_, this->communicator().size());
  }

  /// The constructor's arguments.
  /// @{
  const Model& model() const { return model_; }
  const RunShape& shape() const { return shape_; }
  const StepSize& size() const { return shape_.size; }
  /// @}
  /// The arena of offloaded block inputs in host memory.
  typename Offload::Arena& offload_arena() { return offload_arena_; }
  /// Peak bytes of tensors offloaded to host memory.
  std::int64_t offloaded_bytes() {
    return this->offload_ledger().peak() + (Device::counts_only ? offload_arena_.peak() : input_ledger_.peak());
  }

 private:
  static std::vector<Unit> checked_units(const Model& model, const RunShape& shape) {
    std::vector<Unit> units = SequencesOf<Model>::units_of(model, shape);
    if constexpr (has_float_weights<typename Stack::Precision>) require_float_weights(units, model.units().precision);
    return units;
  }
  static ModuleSettings settings_of(const UnitOptions& unit_options, const RunShape& shape, Purpose purpose) {
    return {.passes = {.unit_options = unit_options,
                       .micro_batches = shape.size.micro_batches,
                       .repeats = shape.size.verifies,
                       .ranks_per_sequence = shape.size.ranks_per_sequence,
                       .purpose = purpose},
            .threads = shape.threads(),
            .arena_bytes = shape.activation_bytes,
            .step_work = shape.step_work};
  }

  Model model_;
  RunShape shape_;
  device::Ledger input_ledger_;
  typename Offload::Arena offload_arena_;
};

}  // namespace fsdp

// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model whose units are sharded: its ShardedModule, the model itself, and the memory of offloaded block inputs.
///
/// A model is an entry module that reads batches, a list of blocks, and a loss module (tessera/fsdp/models/model.hpp).
#pragma once

#include <cstdint>
#include <utility>

#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/execution/run_shape.hpp>
#include <tessera/fsdp/execution/whole_sequences.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>

namespace fsdp {

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
      : Base(std::forward<World>(world), SequencesOf<Model>::units_of(model, shape), sharding,
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
  /// @}
  /// The arena of offloaded block inputs in host memory.
  typename Offload::Arena& offload_arena() { return offload_arena_; }
  /// Peak bytes of tensors offloaded to host memory.
  std::int64_t offloaded_bytes() {
    return this->offload_ledger().peak() + (Device::counts_only ? offload_arena_.peak() : input_ledger_.peak());
  }

 private:
  static ModuleSettings settings_of(const UnitOptions& unit_options, const RunShape& shape, Purpose purpose) {
    return {.passes = {.unit_options = unit_options,
                       .micro_batches = shape.micro_batches,
                       .repeats = shape.verifies,
                       .ranks_per_sequence = shape.ranks_per_sequence,
                       .purpose = purpose},
            .threads = shape.threads,
            .arena_bytes = shape.activation_bytes,
            .step_work = shape.step_work};
  }

  Model model_;
  RunShape shape_;
  device::Ledger input_ledger_;
  typename Offload::Arena offload_arena_;
};

}  // namespace fsdp

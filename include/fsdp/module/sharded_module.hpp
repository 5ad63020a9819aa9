// SPDX-License-Identifier: Apache-2.0
/// @file
/// Units of named tensors whose weights, gradients and optimizer state are sharded over ranks: their memory, groups and
/// schedules. The module does not know a unit's computation or inputs.
///
/// Memory is planned from the schedules and allocated in the constructor; a step allocates no tensor memory.
#pragma once

#include <span>
#include <utility>

#include <tessera/comm/mesh.hpp>
#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/module/module_memory.hpp>
#include <tessera/fsdp/module/stack_mesh.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/sharding/problem.hpp>
#include <tessera/fsdp/sharding/schedule_of.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>

namespace fsdp {

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
      : Memory({communicator, StackAxes::of<Stack>(sharding)}, units, std::move(settings), calls_of(sharding)) {}

  /// The same on an existing mesh, which must have as many axes as the strategy works on.
  template <int axes>
  ShardedModule(comm::Mesh<Comm, axes> mesh, std::span<const Unit> units, const typename Stack::Sharding& sharding,
                ModuleSettings settings)
      : Memory(StackMesh<TypesOf<Stack>>(std::move(mesh)), units, std::move(settings), calls_of(sharding)) {}

 private:
  static StrategyCalls calls_of(const typename Stack::Sharding& sharding) {
    return {.facts = sharding::facts_of(sharding),
            .schedule_of =
                [sharding](const sharding::Problem& problem) { return sharding::schedule_of(sharding, problem); },
            .build_layouts = [layout = layout_of(sharding)](
                                 std::span<const buffer::TensorGroup> groups,
                                 std::span<const int> parts) { return buffer::build_layouts(layout, groups, parts); }};
  }
};

}  // namespace fsdp

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tensors of a module's step, for the folder of `tessera replay --tensors`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/fsdp/verification/step_digest.hpp>
#include <tessera/trainer/report/step_tensors.hpp>

namespace fsdp::train {

/// Sets `parameters` to those that the step changes, and `uses`. `of_unit`: the names of each unit's parameters.
void set_parameters(report::StepShapes& shapes, GroupList groups, std::span<const std::vector<std::string>> of_unit);

/// Returns the shapes of the tensors of a ShardedModel's step. `rows`: of a stream; `pieces`: of a step.
template <class Module>
report::StepShapes step_shapes(Module& module, int pieces, std::int64_t rows) {
  report::StepShapes shapes{.units = module.names().units,
                            .first_backward = module.first_backward(),
                            .pieces = pieces,
                            .stream = {rows, module.model().hidden()},
                            .type = dtype_of<typename Module::Compute>()};
  std::vector<std::vector<std::string>> of_unit(shapes.units.size());
  for (std::size_t unit = 0; unit < of_unit.size(); ++unit)
    for (const Reference& reference : module.references(static_cast<int>(unit)))
      if (reference.present()) of_unit[unit].push_back(module.parameter(reference).name);
  set_parameters(shapes, module.group_list(), of_unit);
  return shapes;
}

/// Writes the output of a task's computation, if it is selected.
template <class Module>
void write_stream(Module& module, const sharding::Task& task, Tensor<const typename Module::Compute> values,
                  report::StepTensors& tensors) {
  using Kind = StepDigest::Kind;
  using Compute = typename Module::Compute;
  const Kind kind = task.action == sharding::Action::forward ? Kind::forward : Kind::backward;
  const int piece = module.step_piece(task.micro_batch).value();
  if (!tensors.wants(kind, task.index, piece)) return;
  device::OnHost<typename Module::Device, const Compute> host(module.stream(), values);
  const Tensor<const Compute> there = host.values();
  if constexpr (std::is_same_v<Compute, float>) {
    tensors.write_stream(kind, task.index, piece, {there.data(), static_cast<std::size_t>(there.numel())});
  } else {
    const std::vector<float> wide(there.data(), there.data() + there.numel());
    tensors.write_stream(kind, task.index, piece, wide);
  }
}

/// Writes the gradients or the weights that the step changes, in the shards that this rank owns.
template <class Module>
void write_stepped(Module& module, StepDigest::Kind kind, report::StepTensors& tensors) {
  for (const auto& piece : module.shards()) {
    if (!piece.owned || !module.is_stepped(piece)) continue;
    const auto write = [&](Tensor<const float> values, std::int64_t begin) {
      tensors.write_parameter(kind, piece.parameter->name, begin,
                              {values.data(), static_cast<std::size_t>(values.numel())});
    };
    if (kind == StepDigest::Kind::gradient)
      write(device::OnHost<typename Module::Device, const float>(module.stream(), piece.gradient).values(),
            piece.begin);
    else
      with_host_weights(module, piece, Access::read, write);
  }
}

}  // namespace fsdp::train

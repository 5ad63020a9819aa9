// SPDX-License-Identifier: Apache-2.0
/// @file
/// Between files and shards: each rank reads and writes the ranges that it holds, and nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <comm/collectives.hpp>
#include <fsdp/checkpoint/folder.hpp>
#include <fsdp/checkpoint/model_files.hpp>
#include <fsdp/device/on_host.hpp>
#include <fsdp/module/sharded_module.hpp>
#include <fsdp/optim/adamw.hpp>

namespace fsdp::train {

/// Where weights and moments at rest live.
template <class Model>
using MainSpace = typename ShardedModule<Model>::Group::MainSpace;

/// Weights from a folder that was checked to have them all.
template <class Model>
void load_weights(ShardedModule<Model>& module, const checkpoint::SafetensorsFile& file) {
  for (const auto& piece : module.pieces()) {
    device::OnHost<MainSpace<Model>, float> host(module.stream(), piece.main);
    file.read_range(file.at(piece.parameter->name), piece.begin, piece.main.numel(), host.values().data());
    host.write_back();
  }
  module.sync_model_weights();
}

/// Weights and moments of a checkpoint, to the bit.
template <class Model>
void restore(ShardedModule<Model>& module, optim::AdamW<Model>& optimizer, const checkpoint::Checkpoint& from) {
  using checkpoint::Part;
  for (const auto& piece : module.pieces()) {
    const auto read = [&](Part part, Tensor<float> values) {
      device::OnHost<MainSpace<Model>, float> host(module.stream(), values);
      from.read(part, piece.parameter->name, piece.begin, values.numel(), host.values().data());
      host.write_back();
    };
    read(Part::weight, piece.main);
    read(Part::exp_avg, optimizer.first_moment(piece));
    read(Part::exp_avg_sq, optimizer.second_moment(piece));
  }
  optimizer.control().resume(from.state().step, from.state().skipped_steps);
  module.sync_model_weights();
}

/// Writes the ranges that this rank owns.
template <class Model>
void write_shards(ShardedModule<Model>& module, const optim::AdamW<Model>& optimizer, checkpoint::Save& save) {
  using checkpoint::Part;
  std::map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < save.parameters().size(); ++i) index[save.parameters()[i].name] = i;
  for (const auto& piece : module.pieces()) {
    if (!piece.owned) continue;
    const std::size_t parameter = index.at(piece.parameter->name);
    const auto write = [&](Part part, Tensor<const float> tensor) {
      device::OnHost<MainSpace<Model>, const float> host(module.stream(), tensor);
      const auto values = host.values();
      save.write(part, parameter, piece.begin, std::span(values.data(), static_cast<std::size_t>(values.numel())));
    };
    write(Part::weight, piece.main);
    write(Part::exp_avg, optimizer.first_moment(piece));
    write(Part::exp_avg_sq, optimizer.second_moment(piece));
  }
}

}  // namespace fsdp::train

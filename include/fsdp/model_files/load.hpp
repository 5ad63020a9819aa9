// SPDX-License-Identifier: Apache-2.0
/// @file
/// Loads a model's folder into a sharded model: each rank reads only the ranges of its shards.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/checkpoint/weight_files.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/model_files/model_files.hpp>
#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>

namespace fsdp::train {

/// Loads this rank's shards of the weights from folders that open_model has checked. Adapters keep their values if no
/// folder contains adapters. Throws InputError for a weight that is not finite: if no batch used the weight, the error
/// might not show before the last step.
template <class Stack>
void load_weights(ShardedModule<Stack>& module, const checkpoint::ModelFiles& files) {
  for (const auto& shard : module.shards()) {
    if (shard.parameter->adapter && !files.listing.lora) continue;
    with_host_weights(module, shard, Access::replace, [&](Tensor<float> values, std::int64_t begin) {
      files.read_finite(shard.parameter->name, begin, values.numel(), values.data());
    });
  }
  module.sync_model_weights();
}

/// Opens a folder's model, with the adapters of another folder unless `adapter` is empty. Collective; throws on all
/// ranks if one rank fails, or if ranks see different files.
checkpoint::ModelFiles open_agreed_model(const comm::Ranks& ranks, const std::string& folder,
                                         const checkpoint::ReadModelListing& read, const checkpoint::Warn& warn,
                                         const std::string& adapter);

/// Opens a folder with open_agreed_model and loads its weights into a sharded model. Collective.
template <class Module>
void load_agreed_weights(typename Module::Comm& communicator, Module& module, const std::string& folder,
                         const checkpoint::Warn& warn, const std::string& adapter = {}) {
  const checkpoint::ModelFiles files = open_agreed_model(
      communicator, folder, checkpoint::read_listing_with<typename Module::Model>(adapter), warn, adapter);
  comm::together(communicator, "model", [&] { load_weights(module, files); });
}

}  // namespace fsdp::train

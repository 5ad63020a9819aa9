// SPDX-License-Identifier: Apache-2.0
/// @file
/// Initial weights: a function of seed, parameter name and global index alone, so that they do not depend on sharding.
#pragma once

#include <cstdint>
#include <string_view>

#include <fsdp/device/on_host.hpp>
#include <fsdp/module/sharded_module.hpp>
#include <fsdp/module/units.hpp>

namespace fsdp::optim {

/// Element `index` of a standard normal sequence named by `key` (Box and Muller 1958).
double normal_at(std::uint64_t key, std::int64_t index);

/// Elements [begin, begin + weights.numel()) of a parameter, as it says that they begin.
void initialize(Tensor<float> weights, const NamedParameter& parameter, std::int64_t begin, std::uint64_t seed);

/// Every rank makes the elements that it holds.
template <class Model>
void initialize(ShardedModule<Model>& module, std::uint64_t seed) {
  using Space = typename ShardedModule<Model>::Group::MainSpace;
  for (const auto& piece : module.pieces()) {
    device::OnHost<Space, float> host(module.stream(), piece.main);
    initialize(host.values(), *piece.parameter, piece.begin, seed);
    host.write_back();
  }
  module.sync_model_weights();
}

}  // namespace fsdp::optim

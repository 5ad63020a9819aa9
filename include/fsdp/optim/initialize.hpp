// SPDX-License-Identifier: Apache-2.0
/// @file
/// Initial weights: a function of seed, parameter name and global index alone, so that they do not depend on sharding.
#pragma once

#include <cstdint>
#include <string_view>

#include <fsdp/module/host_weights.hpp>
#include <fsdp/module/sharded_module.hpp>
#include <fsdp/module/units.hpp>

namespace fsdp::optim {

/// Element `index` of a standard normal sequence named by `key` (Box and Muller 1958).
double normal_at(std::uint64_t key, std::int64_t index);

/// Elements [begin, begin + weights.numel()) of a parameter, as it says that they begin.
void initialize(Tensor<float> weights, const NamedParameter& parameter, std::int64_t begin, std::uint64_t seed);

/// Which parameters are begun.
enum class Begin : std::uint8_t { all, adapters };

/// Every rank makes the elements that it holds.
template <class Model>
void initialize(ShardedModule<Model>& module, std::uint64_t seed, Begin which = Begin::all) {
  for (const auto& piece : module.pieces()) {
    if (which == Begin::adapters && !piece.parameter->adapter) continue;
    with_host_weights(module, piece, Access::write, [&](Tensor<float> values, std::int64_t begin) {
      initialize(values, *piece.parameter, begin, seed);
    });
  }
  module.sync_model_weights();
}

}  // namespace fsdp::optim

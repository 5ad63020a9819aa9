// SPDX-License-Identifier: Apache-2.0
/// @file
/// Initial weights. They depend on the seed, the parameter's name and the global index only, not on sharding.
#pragma once

#include <cstdint>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/module/units.hpp>

namespace fsdp::optim {

/// Returns element `index` of the standard normal sequence that belongs to `key` (Box and Muller 1958).
double normal_at(std::uint64_t key, std::int64_t index);

/// Sets `weights` to the initial values of elements [begin, begin + weights.numel()) of a parameter, which do not
/// depend on the number of `threads`; 0: as many threads as the calling thread's OpenMP team has.
void initialize(Tensor<float> weights, const Parameter& parameter, std::int64_t begin, std::uint64_t seed,
                int threads = 0);

/// Which parameters are initialized.
enum class Initialized : std::uint8_t { all, adapters };

/// Initializes the elements that this rank owns with the rank's own threads, in parts that are copied to the device.
/// With Options::checks it is collective, and throws InputError on all ranks, before anything is written, unless all
/// ranks pass the same seed.
template <class Stack>
void initialize(ShardedModule<Stack>& module, std::uint64_t seed, Initialized which = Initialized::all) {
  comm::check_same(module.communicator(), "initialize", "initialize: ranks give other seeds for all tensors",
                   [&] { return message("seed = ", seed); });
  int threads = 0;
  if constexpr (ShardedModule<Stack>::Device::host_memory) threads = module.stream().threads();
  for (const auto& shard : module.shards()) {
    if (which == Initialized::adapters && !shard.parameter->adapter) continue;
    with_host_weights(module, shard, Access::replace, [&](Tensor<float> values, std::int64_t begin) {
      initialize(values, *shard.parameter, begin, seed, threads);
    });
  }
  module.sync_model_weights();
}

}  // namespace fsdp::optim

// SPDX-License-Identifier: Apache-2.0
/// @file
/// A rank's weights as floats that the host may read and write.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/on_host.hpp>
#include <fsdp/module/sharded_module.hpp>

namespace fsdp {

/// Whether what was written becomes the weights.
enum class Access : std::uint8_t { read, write };

/// Calls f(values, begin) with floats of a piece, from element `begin` of the whole tensor: all of them where there
/// are main weights, else a part at a time of what the model computes with. What f writes is kept with Access::write;
/// main weights are not yet rounded into the model's (ShardedModule::sync_model_weights).
template <class Model, class F>
void with_host_weights(ShardedModule<Model>& module, const typename ShardedModule<Model>::Piece& piece, Access access,
                       F f) {
  using Module = ShardedModule<Model>;
  using Compute = typename Module::Compute;
  constexpr std::int64_t part = 1 << 20;
  if (piece.has_main()) {
    device::OnHost<typename Module::Group::MainSpace, float> host(module.stream(), piece.main);
    f(host.values(), piece.begin);
    if (access == Access::write) host.write_back();
    return;
  }
  std::vector<float> values;
  for (std::int64_t begin = 0; begin < piece.count(); begin += part) {
    const std::int64_t count = std::min(part, piece.count() - begin);
    device::OnHost<typename Module::Device, Compute> host(module.stream(), {piece.model.data() + begin, {count}});
    const Tensor<Compute> narrow = host.values();
    values.resize(static_cast<std::size_t>(count));
    if (access == Access::read)
      std::transform(narrow.data(), narrow.data() + count, values.begin(), [](Compute x) { return float(x); });
    f(Tensor<float>(values.data(), {count}), piece.begin + begin);
    if (access == Access::read) continue;
    std::transform(values.begin(), values.end(), narrow.data(), [](float x) { return Compute(x); });
    host.write_back();
  }
}

}  // namespace fsdp

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Access to a rank's weights from the host, as floats.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/on_host.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>

namespace fsdp {

/// Whether the callback's writes become the weights.
enum class Access : std::uint8_t { read, write };

/// Calls f(values, begin) with the floats of a piece that start at element `begin` of the whole tensor. If the piece
/// has main weights, f gets all of them in one call; else it gets the model's weights, converted to float, in parts of
/// at most 2^20 elements. With Access::write, what f writes becomes the weights. Main weights are not rounded into the
/// model's weights here: call ShardedModule::sync_model_weights.
template <class Stack, class F>
void with_host_weights(ShardedModule<Stack>& module, const typename ShardedModule<Stack>::Piece& piece, Access access,
                       F f) {
  using Module = ShardedModule<Stack>;
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

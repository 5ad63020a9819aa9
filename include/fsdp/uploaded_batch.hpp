// SPDX-License-Identifier: Apache-2.0
/// @file
/// Micro-batches where the device reads them.
#pragma once

#include <cstdint>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/micro_batch.hpp>
#include <fsdp/nn/module.hpp>

namespace fsdp {

struct UploadedBatch {
  MicroBatch batch;     ///< the host's, but that `tokens` are the device's
  nn::Targets targets;  ///< both
};

/// Copies tokens and targets into the arena, where the device does not read the host's memory.
template <class L>
UploadedBatch upload(nn::Context<L>& context, const MicroBatch& batch) {
  using Device = typename L::Device;
  const auto on_device = [&](Tensor<const std::int32_t> list) {
    if (Device::host_memory || list.data() == nullptr) return list;
    const auto copy = context.template save<std::int32_t>(list.shape());
    device::move<Device>(context.stream, list.data(), copy.data(), copy.numel());
    return Tensor<const std::int32_t>(copy);
  };
  UploadedBatch uploaded{.batch = batch, .targets = batch.targets};
  uploaded.batch.tokens = on_device(batch.tokens);
  uploaded.targets.device = on_device(batch.targets);
  return uploaded;
}

}  // namespace fsdp

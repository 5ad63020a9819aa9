// SPDX-License-Identifier: Apache-2.0
/// @file
/// Micro-batches where the device reads them.
#pragma once

#include <cstdint>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/documents.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/module/micro_batch.hpp>
#include <fsdp/nn/module.hpp>

namespace fsdp {

/// A micro-batch whose tokens the device reads, and whose targets both do.
struct UploadedBatch {
  Tensor<const std::int32_t> tokens;  // [sequences * S]
  nn::Targets targets;
  std::int64_t sequences = 0;
  device::CumulativeLengths documents;
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
  UploadedBatch uploaded{.tokens = on_device(batch.tokens),
                         .targets = batch.targets,
                         .sequences = batch.sequences,
                         .documents = batch.documents};
  uploaded.targets.device = on_device(batch.targets);
  return uploaded;
}

}  // namespace fsdp

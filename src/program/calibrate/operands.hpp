// SPDX-License-Identifier: Apache-2.0
/// @file
/// Operands of measurements: tensors with their own memory, and deterministic values in [-scale, scale), which become
/// neither denormal nor large when they are multiplied.
#pragma once

#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/device/memory.hpp>

namespace fsdp::calibrate {

template <class Device>
class Tensors {
 public:
  /// Allocates a tensor, which lives as long as this object.
  template <class T>
  Tensor<T> make(const Shape& shape) {
    blocks_.emplace_back(ledger_, device::MemoryKind::scratch, shape.numel() * std::int64_t{sizeof(T)});
    return {reinterpret_cast<T*>(blocks_.back().data()), shape};
  }
  std::int64_t bytes() const { return ledger_.bytes(); }  ///< bytes of all tensors

 private:
  device::Ledger ledger_;
  std::vector<device::Block<Device>> blocks_;
};

/// Fills host memory.
/// @{
void fill_uniform(Tensor<float> values, float scale);
void fill_uniform(Tensor<bf16> values, float scale);
/// @}

/// Fills memory of a device.
template <class Device, class T>
void fill_uniform(typename Device::Queue& queue, Tensor<T> values, float scale) {
  device::OnHost<Device, T> host(queue, values, device::Fetch::nothing);
  fill_uniform(host.values(), scale);
  host.write_back();
}

}  // namespace fsdp::calibrate

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Deterministic values for the operands of measurements in [-scale, scale), which become neither denormal nor large
/// when they are multiplied.
#pragma once

#include <tessera/fsdp/core/bf16.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/on_host.hpp>

namespace fsdp::calibrate {

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

// SPDX-License-Identifier: Apache-2.0
/// @file
/// A device's offload space: host memory, larger and slower than the device's own, for tensors that are rarely needed.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>

namespace fsdp::device {

/// The offload space for main weights and optimizer state (Offload) and block inputs (UnitOptions::offload_inputs). It
/// is counted separately from the device's own memory, and only the optimizer computes on it. On a CPU it is the same
/// RAM; there, the separate space shows which tensors would move, and that no others do. A device with its own kind of
/// host memory specialises this template.
template <class Device>
struct HostOffload {
  static constexpr bool counts_only = Device::counts_only;
  static constexpr bool host_memory = true;
  using Queue = typename Device::Queue;
  using Arena = device::Arena<HostOffload>;

  static std::byte* allocate(std::int64_t bytes) { return Device::allocate(bytes); }
  static void deallocate(std::byte* data, std::int64_t bytes) { Device::deallocate(data, bytes); }
  static void poison(std::byte* data, std::int64_t bytes) { Device::poison(data, bytes); }
  static void unpoison(std::byte* data, std::int64_t bytes) { Device::unpoison(data, bytes); }
  static std::byte* unbacked(std::int64_t offset) { return Device::unbacked(offset); }

  /// Copies between the device's memory and the offload space, in either direction: on `queue` if the device is
  /// asynchronous, else on `stream`.
  template <class T>
  static void transfer(typename Device::Stream& stream, typename Device::Queue& queue, Tensor<const T> from,
                       Tensor<T> to) {
    if constexpr (Device::asynchronous)
      device::move<Device>(queue, from.data(), to.data(), from.numel());
    else
      enqueue(stream, Copy<T>{.x = from, .y = to});
  }
};

}  // namespace fsdp::device

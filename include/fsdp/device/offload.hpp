// SPDX-License-Identifier: Apache-2.0
/// @file
/// A device's offload space: larger and slower than its own, for what is seldom needed.
#pragma once

#include <cstddef>
#include <cstdint>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/device/operations/elements.hpp>

namespace fsdp::device {

/// Where main weights and optimizer state (Offload) and block inputs (Units::offload_inputs) may live. Counted apart
/// from the device's own memory; nothing computes on it but the optimizer. On a CPU it is the same RAM: there the
/// second space shows what would move, and that nothing else does. A device with a host space of its own specialises
/// this.
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

  /// Between the device's memory and this one, either way; on `queue` where operations are queued.
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

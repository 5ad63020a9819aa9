// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host memory that a queue copies from and to asynchronously.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/offload.hpp>

namespace fsdp::device {

/// Allocates zeroed host memory, pinned if the device is asynchronous. It is not counted in a ledger.
template <class Device>
std::shared_ptr<std::byte> host_memory(std::int64_t bytes) {
  if constexpr (Device::asynchronous)
    return {HostOffload<Device>::allocate(bytes),
            [bytes](std::byte* data) { HostOffload<Device>::deallocate(data, bytes); }};
  else
    return {new std::byte[static_cast<std::size_t>(bytes)](), std::default_delete<std::byte[]>()};
}

/// Values in host memory that a queue copies to or from the device, with the event of the last copy.
template <class Device, class T>
class HostCopy {
 public:
  explicit HostCopy(std::int64_t count = 1)
      : memory_(host_memory<Device>(checked_multiply(count, static_cast<std::int64_t>(sizeof(T))))), count_(count) {}

  /// Returns the host values. Do not access them between `send` or `fetch` and the event `copied()`.
  Tensor<T> values() const { return {reinterpret_cast<T*>(memory_.get()), {count_}}; }
  T& value() const { return *values().data(); }

  void send(typename Device::Queue& queue, T* to) { copy(queue, values().data(), to); }
  void fetch(typename Device::Queue& queue, const T* from) { copy(queue, from, values().data()); }
  /// Returns the event at which the last copy is complete.
  const typename Device::Event& copied() const { return copied_; }

 private:
  void copy(typename Device::Queue& queue, const T* from, T* to) {
    move<Device>(queue, from, to, count_);
    copied_ = queue.record();
  }

  std::shared_ptr<std::byte> memory_;
  std::int64_t count_;
  typename Device::Event copied_;
};

}  // namespace fsdp::device

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host memory that queues copy from and to while the host goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <fsdp/core/checked.hpp>
#include <fsdp/core/tensor.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/device/offload.hpp>

namespace fsdp::device {

/// Zeroed; pinned where the device is asynchronous. Not counted: it is the host's.
template <class Device>
std::shared_ptr<std::byte> host_memory(std::int64_t bytes) {
  if constexpr (Device::asynchronous)
    return {HostOffload<Device>::allocate(bytes),
            [bytes](std::byte* data) { HostOffload<Device>::deallocate(data, bytes); }};
  else
    return {new std::byte[static_cast<std::size_t>(bytes)](), std::default_delete<std::byte[]>()};
}

/// Values of the host, and the point at which a queue has read or written them.
template <class Device, class T>
class HostCopy {
 public:
  explicit HostCopy(std::int64_t count = 1)
      : memory_(host_memory<Device>(checked_multiply(count, static_cast<std::int64_t>(sizeof(T))))), count_(count) {}

  /// The host's, until they are sent and after they have arrived.
  Tensor<T> values() const { return {reinterpret_cast<T*>(memory_.get()), {count_}}; }
  T& value() const { return *values().data(); }

  void send(typename Device::Queue& queue, T* to) { copy(queue, values().data(), to); }
  void fetch(typename Device::Queue& queue, const T* from) { copy(queue, from, values().data()); }
  /// When the last copy was made.
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

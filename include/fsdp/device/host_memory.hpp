// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host memory of a device: the offload space, memory that a queue copies from and to asynchronously, and host access
/// to a tensor's values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>

namespace fsdp::device {

/// The offload space for main weights and optimizer state (Offload) and block inputs (UnitOptions::offload_inputs). It
/// is counted separately from the device's own memory, and only the optimizer computes on it. On a CPU it is the same
/// RAM; there, the separate space shows which tensors would move, and that no others do. A device with its own kind of
/// host memory specialises this template.
template <class Device>
struct HostOffload : Device {
  static constexpr bool host_memory = true;
  using Arena = device::Arena<HostOffload>;

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

/// Allocates zeroed host memory that no device needs to know.
std::shared_ptr<std::byte> zeroed_memory(std::int64_t bytes);

/// Allocates zeroed host memory, pinned if the device is asynchronous. It is not counted in a ledger.
template <class Device>
std::shared_ptr<std::byte> host_memory(std::int64_t bytes) {
  if constexpr (Device::asynchronous)
    return {HostOffload<Device>::allocate(bytes),
            [bytes](std::byte* data) { HostOffload<Device>::deallocate(data, bytes); }};
  else
    return zeroed_memory(bytes);
}

/// Values in host memory that a queue copies to or from the device, with the event of the last copy.
template <class Device, class T>
class HostCopy {
 public:
  /// Allocates `count` zeroed values.
  explicit HostCopy(std::int64_t count = 1)
      : memory_(host_memory<Device>(checked_multiply(count, static_cast<std::int64_t>(sizeof(T))))), count_(count) {}

  /// Returns the host values. Do not access them between `send` or `fetch` and the event `copied()`.
  Tensor<T> values() const { return {reinterpret_cast<T*>(memory_.get()), {count_}}; }
  T& value() const { return *values().data(); }  ///< the first of them

  /// Copies the values to the device.
  void send(typename Device::Queue& queue, T* to) { copy(queue, values().data(), to); }
  /// Copies values from the device.
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

/// The initial contents of a copy in host memory: the tensor's values, or zeros if all of them will be overwritten.
enum class Fetch : std::uint8_t { values, nothing };

/// A tensor's values in host memory: the tensor itself if the host can access it, else a copy that `write_back` copies
/// back. The constructor waits for all work already on `queue`.
template <class Device, class T>
class OnHost {
 public:
  using Value = std::remove_const_t<T>;

  /// Takes the tensor, or copies it.
  OnHost(typename Device::Queue& queue, Tensor<T> tensor, Fetch fetch = Fetch::values)
      : queue_(queue), tensor_(tensor) {
    if constexpr (!Device::host_memory) {
      copy_.resize(static_cast<std::size_t>(tensor.numel()));
      if (fetch == Fetch::values) move<Device, Value>(queue, tensor.data(), copy_.data(), tensor.numel());
    }
    queue.synchronize();
  }
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;

  Tensor<T> values() {  ///< the values in host memory
    if constexpr (Device::host_memory)
      return tensor_;
    else
      return {copy_.data(), tensor_.shape()};
  }
  /// Copies the values back to the tensor, if they are a copy, and waits.
  void write_back() requires(!std::is_const_v<T>) {
    if constexpr (!Device::host_memory) {
      move<Device, Value>(queue_, copy_.data(), tensor_.data(), tensor_.numel());
      queue_.synchronize();
    }
  }

 private:
  typename Device::Queue& queue_;
  Tensor<T> tensor_;
  std::vector<Value> copy_;
};

}  // namespace fsdp::device

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host access to a tensor's values on any device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/memory.hpp>

namespace fsdp::device {

/// The initial contents of a copy in host memory: the tensor's values, or zeros if all of them will be overwritten.
enum class Fetch : std::uint8_t { values, nothing };

/// A tensor's values in host memory: the tensor itself if the host can access it, else a copy that `write_back` copies
/// back. The constructor waits for all work already on `queue`.
template <class Device, class T>
class OnHost {
 public:
  using Value = std::remove_const_t<T>;

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

  /// Returns the values in host memory.
  Tensor<T> values() {
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

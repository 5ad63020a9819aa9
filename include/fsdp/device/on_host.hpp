// SPDX-License-Identifier: Apache-2.0
/// @file
/// A tensor's values where the host can use them, whatever memory the device has.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/memory.hpp>

namespace fsdp::device {

/// The tensor itself where its memory is the host's; elsewhere a copy, which `write_back` returns. What was
/// enqueued before is over in both cases.
template <class Device, class T>
class OnHost {
 public:
  using Value = std::remove_const_t<T>;

  OnHost(typename Device::Queue& queue, Tensor<T> tensor) : queue_(queue), tensor_(tensor) {
    if constexpr (!Device::host_memory) {
      copy_.resize(static_cast<std::size_t>(tensor.numel()));
      move<Device, Value>(queue, tensor.data(), copy_.data(), tensor.numel());
    }
    queue.synchronize();
  }
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;

  /// Contiguous.
  Tensor<T> values() {
    if constexpr (Device::host_memory)
      return tensor_;
    else
      return {copy_.data(), tensor_.shape()};
  }
  /// What was written to the values becomes the tensor's.
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

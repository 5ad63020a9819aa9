// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tensors with their own memory, for operands of measurements.
#pragma once

#include <vector>

#include <tessera/fsdp/core/tensor.hpp>
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

}  // namespace fsdp::calibrate

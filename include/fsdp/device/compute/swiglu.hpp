// SPDX-License-Identifier: Apache-2.0
/// @file
/// The gate of a SwiGLU MLP (Shazeer 2020).
#pragma once

#include <string_view>
#include <tuple>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operation.hpp>

namespace fsdp::device {

/// h = silu(gate) * up; h may alias gate.
template <class T>
struct SwiGlu {
  static constexpr std::string_view name = "swiglu";

  Tensor<const T> gate = {};  // [T, I]
  Tensor<const T> up = {};    // [T, I]
  Tensor<T> h = {};           // [T, I]

  auto tensors() const { return std::tie(gate, up, h); }
  Cost cost() const { return {.bytes = gate.bytes() + up.bytes() + h.bytes()}; }
  void check() const {
    require_same_shape(name, gate, up);
    require_same_shape(name, gate, h);
  }
};

/// Gradients of SwiGlu in place: overwrites gate and up with their gradients, and dh with h.
template <class T>
struct SwiGluBackward {
  static constexpr std::string_view name = "swiglu_backward";

  Tensor<T> gate = {};  // [T, I]
  Tensor<T> up = {};    // [T, I]
  Tensor<T> dh = {};    // [T, I]

  auto tensors() const { return std::tie(gate, up, dh); }
  Cost cost() const { return {.bytes = 2 * (gate.bytes() + up.bytes() + dh.bytes())}; }
  void check() const {
    require_same_shape(name, gate, up);
    require_same_shape(name, gate, dh);
  }
};

}  // namespace fsdp::device

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Operations of linear layers and MLPs: matrix products, biases, and the gate of SwiGLU (Shazeer 2020).
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operation.hpp>

namespace fsdp::device {

/// A matmul operand: a matrix or its transpose.
template <class T>
struct Operand {
  Tensor<const T> tensor;
  bool transposed = false;

  Operand() = default;
  /// `matrix`: [rows, columns]. `transposed`: whether the operand is its transpose.
  /// @{
  Operand(Tensor<const T> matrix, bool is_transposed = false) : tensor(matrix), transposed(is_transposed) {}
  Operand(Tensor<T> matrix) : tensor(matrix) {}
  /// @}

  /// The extents after transposition.
  /// @{
  std::int64_t rows() const { return transposed ? tensor.columns() : tensor.rows(); }
  std::int64_t columns() const { return transposed ? tensor.rows() : tensor.columns(); }
  /// @}
};

/// Returns the matrix as a transposed operand.
template <class T>
Operand<std::remove_const_t<T>> transposed(Tensor<T> matrix) {
  return {Tensor<const std::remove_const_t<T>>(matrix), true};
}

/// c = a * b, or c += a * b: [M, K] x [K, N] -> [M, N], summed in float. C is A or float.
template <class A, class C = A>
struct Matmul {
  static constexpr std::string_view name = "matmul";

  Operand<A> a = {};
  Operand<A> b = {};
  Tensor<C> c = {};
  Write write = Write::overwrite;

  auto tensors() const { return std::tie(a.tensor, b.tensor, c); }
  /// Returns the problem's sizes and types.
  MatmulRecord record() const {
    return {.m = a.rows(),
            .n = b.columns(),
            .k = a.columns(),
            .a_transposed = a.transposed,
            .b_transposed = b.transposed,
            .operands = dtype_of<A>(),
            .result = dtype_of<C>(),
            .accumulate = write == Write::accumulate};
  }
  Cost cost() const {
    const MatmulRecord problem = record();
    return {.matmul_flops = 2 * checked_multiply(checked_multiply(problem.m, problem.n), problem.k), .matmul = problem};
  }
  void check() const {
    require(a.tensor.rank() == 2 && b.tensor.rank() == 2 && c.rank() == 2, "matmul: every operand needs rank 2");
    require(a.columns() == b.rows() && c.rows() == a.rows() && c.columns() == b.columns(), "matmul: [", a.rows(), ", ",
            a.columns(), "] x [", b.rows(), ", ", b.columns(), "] does not give [", c.rows(), ", ", c.columns(), "]");
  }
};

/// y += bias for every row.
template <class T>
struct AddBias {
  static constexpr std::string_view name = "add_bias";

  Tensor<const T> bias = {};  // [N]
  Tensor<T> y = {};           // [T, N]

  auto tensors() const { return std::tie(bias, y); }
  Cost cost() const { return {.bytes = bias.bytes() + 2 * y.bytes()}; }
  void check() const {
    require(y.rank() == 2 && bias.numel() == y.columns(), "add_bias: y must be [rows, ", bias.numel(), "]");
  }
};

/// dbias = (or +=) the sum of dy's rows.
template <class T>
struct BiasBackward {
  static constexpr std::string_view name = "bias_backward";

  Tensor<const T> dy = {};   // [T, N]
  Tensor<float> dbias = {};  // [N]
  Write write = Write::overwrite;

  auto tensors() const { return std::tie(dy, dbias); }
  Cost cost() const { return {.bytes = dy.bytes() + (write == Write::accumulate ? 2 : 1) * dbias.bytes()}; }
  void check() const {
    require(dy.rank() == 2 && dbias.numel() == dy.columns(), "bias_backward: dy must be [rows, ", dbias.numel(), "]");
  }
};

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

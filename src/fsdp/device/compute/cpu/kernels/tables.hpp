// SPDX-License-Identifier: Apache-2.0
/// @file
/// The kernel tables of compute operations; src/fsdp/device/cpu/kernels/tables.hpp has the tables of the others.
#pragma once

#include <cstdint>

#include "../../../cpu/kernels/tables.hpp"

namespace fsdp::device::cpu {

template <class T>
struct NormFunctions {
  void (*forward)(const T* x, std::int64_t x_stride, const T* w, float eps, T* y, std::int64_t y_stride, float* rstd,
                  std::int64_t rows, std::int64_t columns);
  /// Adds to dw[columns], row by row. dx may alias dy.
  void (*backward)(const T* x, std::int64_t x_stride, const T* w, const float* rstd, const T* dy,
                   std::int64_t dy_stride, T* dx, std::int64_t dx_stride, bool accumulate, float* dw, std::int64_t rows,
                   std::int64_t columns);
};
struct NormKernels : ByType<NormFunctions> {};

template <class T>
struct RowProductFunctions {
  /// sums[i] = the sum of a[j] * rows[i * stride + j], j < columns, for i < count.
  void (*products)(const T* a, const T* rows, std::int64_t stride, std::int64_t columns, float* sums,
                   std::int64_t count);
  /// out[j] += the sum of weights[i] * rows[i * stride + j], i < count, for j < columns.
  void (*weighted_sum)(const T* weights, const T* rows, std::int64_t stride, std::int64_t columns, float* out,
                       std::int64_t count);
};
struct RowProductKernels : ByType<RowProductFunctions> {};

template <class T>
struct RopeFunctions {
  /// Rotates one token: `heads` contiguous heads of `head_dim`. `sign` is 1 in forward, -1 in backward.
  void (*rotate)(T* x, const float* table_row, float sign, std::int64_t heads, std::int64_t head_dim);
};
struct RopeKernels : ByType<RopeFunctions> {};

template <class T>
struct SoftmaxFunctions {
  /// Computes the row's largest value, and the sum of exp(value - largest).
  void (*maximum_and_sum)(const T* row, std::int64_t count, float* maximum, double* sum);
  /// row = exp(row - maximum) * factor.
  void (*scaled_exponential)(T* row, std::int64_t count, float maximum, float factor);
};
struct SoftmaxKernels : ByType<SoftmaxFunctions> {};

template <class T>
struct SwiGluFunctions {
  void (*forward)(const T* gate, const T* up, T* h, std::int64_t count);
  /// Overwrites gate and up with their gradients, dh with the forward result.
  void (*backward)(T* gate, T* up, T* dh, std::int64_t count);
};
struct SwiGluKernels : ByType<SwiGluFunctions> {};

template <class T>
struct DirectionFunctions {
  /// y = factor * x.
  void (*scale)(const float* x, float factor, T* y, std::int64_t count);
  /// y = alpha * x + beta * y.
  void (*combine)(float alpha, const T* x, float beta, T* y, std::int64_t count);
  /// main = decay * main - factor * direction; `model` may be null.
  void (*step)(float decay, float factor, const T* direction, float* main, bf16* model, std::int64_t count);
};
struct DirectionKernels : ByType<DirectionFunctions> {
  void (*momentum)(float scale, float momentum, bool nesterov, const float* gradient, float* state, float* direction,
                   std::int64_t count);
};

}  // namespace fsdp::device::cpu

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The kernel tables of one instruction set: plain functions over rows or ranges of elements.
///
/// A kernel runs on the caller's thread. Strides count elements from one row to the next.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/fsdp/core/bf16.hpp>

#include "../isa.hpp"

namespace fsdp::device {
struct AdamWFactors;  // src/fsdp/device/optimizer_step.hpp
}

namespace fsdp::device::cpu {

/// One set of functions for each element type.
template <template <class> class Functions>
struct ByType {
  Functions<float> f32;
  Functions<bf16> half;

  template <class T>
  const Functions<T>& of() const {
    if constexpr (std::is_same_v<T, float>)
      return f32;
    else
      return half;
  }
};

/// The scaling of a row, or of a part that begins at `column`.
struct Scaling {
  float factor = 1;
  bool accumulate = false;
  std::uint32_t dropped_below = 0, row = 0, column = 0;  ///< for dropout (src/fsdp/device/dropout.hpp)
};

template <class T>
struct ElementwiseFunctions {
  void (*add)(const T* x, T* y, std::int64_t count);
  void (*fill)(T* y, float value, std::int64_t count);
  void (*from_float)(const float* x, T* y, std::int64_t count);
  void (*to_float)(const T* x, float* y, std::int64_t count);
  void (*add_to_float)(const T* x, float* y, std::int64_t count);
  void (*scale)(const T* x, T* y, const Scaling& scaling, std::int64_t count);
  void (*scale_to_float)(const T* x, float* y, const Scaling& scaling, std::int64_t count);
  void (*swiglu)(const T* gate, const T* up, T* h, std::int64_t count);
  void (*swiglu_backward)(T* gate, T* up, T* dh, std::int64_t count);
};
struct ElementwiseKernels : ByType<ElementwiseFunctions> {};

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
  /// Rotates one token: `heads` heads of `head_dim`, one after the other. `sign` is 1 forward, -1 backward.
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

struct OptimizerKernels {
  /// `model` may be null.
  void (*adamw)(const AdamWFactors& factors, float* main, float* first_moment, float* second_moment,
                const float* gradient, bf16* model, std::int64_t count);
  /// Sums in double, in sixteen interleaved sums, so that every instruction set gives the same bits.
  double (*sum_of_squares)(const float* x, std::int64_t count);
};

/// SGD's constants, as its elements use them.
struct SgdFactors {
  float gradient_scale = 1, lr = 0, momentum = 0, weight_decay = 0;
  bool nesterov = false;
};

template <class T>
struct DirectionFunctions {
  /// y = factor * x.
  void (*scale)(const float* x, float factor, T* y, std::int64_t count);
  /// y = alpha * x + beta * y.
  void (*combine)(float alpha, const T* x, float beta, T* y, std::int64_t count);
  /// main = decay * main - factor * direction; `model` may be null.
  void (*step)(float decay, float factor, const T* direction, float* main, bf16* model, std::int64_t count);
};
struct StepKernels : ByType<DirectionFunctions> {
  /// `momentum` and `model` may be null.
  void (*sgd)(const SgdFactors& factors, float* main, float* momentum, const float* gradient, bf16* model,
              std::int64_t count);
  void (*momentum_direction)(float scale, float momentum, bool nesterov, const float* gradient, float* state,
                             float* direction, std::int64_t count);
};

}  // namespace fsdp::device::cpu

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The kernel tables of compute operations; src/fsdp/device/cpu/kernels/tables.hpp has the tables of the others.
#pragma once

#include <cstdint>

#include "../../../cpu/kernels/tables.hpp"

namespace fsdp::device::cpu {

/// RMS norm of rows in T with a weight in W.
template <class T, class W>
struct NormFunctions {
  void (*norm)(const T* x, std::int64_t x_stride, const W* w, float eps, T* y, std::int64_t y_stride, float* rstd,
               std::int64_t rows, std::int64_t columns);
  /// Adds to dw[columns], row by row. dx may alias dy.
  void (*norm_backward)(const T* x, std::int64_t x_stride, const W* w, const float* rstd, const T* dy,
                        std::int64_t dy_stride, T* dx, std::int64_t dx_stride, bool accumulate, float* dw,
                        std::int64_t rows, std::int64_t columns);
};

template <class T>
struct RowFunctions {
  /// Rotates one token: `heads` contiguous heads of `head_dim`. `sign` is 1 in forward, -1 in backward.
  void (*rotate)(T* x, const float* table_row, float sign, std::int64_t heads, std::int64_t head_dim);
  /// sums[i] = the sum of a[j] * rows[i * stride + j], j < columns, for i < count.
  void (*products)(const T* a, const T* rows, std::int64_t stride, std::int64_t columns, float* sums,
                   std::int64_t count);
  /// out[j] += the sum of weights[i] * rows[i * stride + j], i < count, for j < columns.
  void (*weighted_sum)(const T* weights, const T* rows, std::int64_t stride, std::int64_t columns, float* out,
                       std::int64_t count);
  /// Computes the row's largest value, and the sum of exp(value - largest).
  void (*maximum_and_sum)(const T* row, std::int64_t count, float* maximum, double* sum);
  /// row = exp(row - maximum) * factor.
  void (*scaled_exponential)(T* row, std::int64_t count, float maximum, float factor);
};
struct RowKernels : ByType<RowFunctions>,
                    NormFunctions<float, float>,
                    NormFunctions<bf16, bf16>,
                    NormFunctions<bf16, float> {};

template <class T>
struct RangeFunctions {
  void (*swiglu)(const T* gate, const T* up, T* h, std::int64_t count);
  /// Overwrites gate and up with their gradients, dh with the forward result.
  void (*swiglu_backward)(T* gate, T* up, T* dh, std::int64_t count);
  /// y = factor * x.
  void (*scale)(const float* x, float factor, T* y, std::int64_t count);
  /// y = alpha * x + beta * y.
  void (*combine)(float alpha, const T* x, float beta, T* y, std::int64_t count);
  /// main = decay * main - factor * direction; `model` may be null.
  void (*step)(float decay, float factor, const T* direction, float* main, bf16* model, std::int64_t count);
};
struct RangeKernels : ByType<RangeFunctions> {
  void (*momentum)(float scale, float momentum, bool nesterov, const float* gradient, float* state, float* direction,
                   std::int64_t count);
};

// Attention's kernels between its matmuls. Scores are exponents of 2: every `scale` of a score is log2(e) /
// sqrt(head_dim). Tiles of scores are overwritten in place by tiles of T, whose rows start at the same addresses as the
// rows of floats: `leading` counts floats. Up to 15 floats after the last column of a row may be written.

/// Scores of a block of queries (rows) with a block of keys (columns), and the running results of the queries.
struct SoftmaxTile {
  float* scores =
      nullptr;  ///< [rows, columns], `leading` apart; becomes the probabilities, before the division by `sum`
  std::int64_t rows = 0, columns = 0, leading = 0;
  std::int64_t visible = 0;  ///< row r attends to columns [max(first, behind + r), visible + r); may be negative
  std::int64_t first = 0;    ///< first column that any row attends to, in [0, columns]
  std::int64_t behind = 0;   ///< visible minus the window; far below 0 without a window
  float scale = 0;
  float* maximum = nullptr;  ///< [rows]: maximum of the scaled scores of earlier blocks
  float* sum = nullptr;      ///< [rows]: sum of 2^(scaled score - maximum)
  float* out = nullptr;      ///< [rows, head_dim]: rescaled in place when the maximum grows
  std::int64_t head_dim = 0;
};

/// Scores and probability gradients of a block of keys (rows) with a block of queries (columns).
struct GradientTile {
  float* scores = nullptr;    ///< [rows, columns], `leading` apart; becomes the probabilities
  float* gradient = nullptr;  ///< same shape; becomes the gradient of the scores, not yet divided by sqrt(head_dim)
  std::int64_t rows = 0, columns = 0, leading = 0;
  std::int64_t hidden = 0;  ///< columns [hidden + r, min(seen, left + r)) attend to row r; may be negative
  std::int64_t seen = 0;    ///< end of the columns that attend to any row, in [0, columns]
  std::int64_t left = 0;    ///< hidden plus the window; far above `seen` without a window
  float scale = 0;
  const float* lse = nullptr;    ///< [columns]: log2 of the sum of 2^score; readable to a multiple of 16
  const float* delta = nullptr;  ///< [columns]: sum of out * dout; readable to a multiple of 16
};

/// A matrix view whose rows are `stride` elements apart.
template <class T>
struct Rows {
  T* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t rows = 0, columns = 0;
};

template <class T>
struct AttentionFunctions {
  void (*pack)(const Rows<const T>& from, T* to);
  void (*softmax)(const SoftmaxTile& tile);
  /// out = tile.out / tile.sum, lse = log(sum of e^score).
  void (*finish)(const SoftmaxTile& tile, const Rows<T>& out, float* lse);
  /// delta = sum of out * dout, per row.
  void (*delta)(const Rows<const T>& out, const Rows<const T>& dout, float* delta);
  void (*gradient)(const GradientTile& tile);
  /// to = scale * the sum, in order, of `parts` contiguous matrices that are `distance` floats apart.
  void (*store_sum)(const float* from, std::int64_t parts, std::int64_t distance, float scale, const Rows<T>& to);
};
struct AttentionKernels : ByType<AttentionFunctions> {};

}  // namespace fsdp::device::cpu

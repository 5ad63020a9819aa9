// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention's kernels between its matmuls, per instruction set: the tables exported by kernels/attention*.cpp.
///
/// Scores are exponents of 2: every `scale` of a score is log2(e) / sqrt(head_dim). Tiles of scores are overwritten in
/// place by tiles of T, whose rows start at the same addresses as the rows of floats: `leading` counts floats. Up to 15
/// floats after the last column of a row may be written.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/fsdp/core/dtype.hpp>

#include "../../cpu/isa.hpp"

namespace fsdp::device::cpu {

/// Scores of a block of queries (rows) with a block of keys (columns), and the running results of the queries.
struct SoftmaxTile {
  float* scores =
      nullptr;  ///< [rows, columns], `leading` apart; becomes the probabilities, not yet divided by their sum
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
struct AttentionForward {
  /// Copies rows to contiguous memory.
  void (*pack)(const Rows<const T>& from, T* to);
  void (*softmax)(const SoftmaxTile& tile);
  /// out = tile.out / tile.sum, lse = log(sum of e^score).
  void (*finish)(const SoftmaxTile& tile, const Rows<T>& out, float* lse);
};

template <class T>
struct AttentionBackward {
  /// delta = sum of out * dout, per row.
  void (*delta)(const Rows<const T>& out, const Rows<const T>& dout, float* delta);
  void (*gradient)(const GradientTile& tile);
  /// to = scale * the sum, in order, of `parts` contiguous matrices that are `distance` floats apart.
  void (*store_sum)(const float* from, std::int64_t parts, std::int64_t distance, float scale, const Rows<T>& to);
};

struct AttentionForwardKernels {
  AttentionForward<float> f32;
  AttentionForward<bf16> b16;
};

struct AttentionBackwardKernels {
  AttentionBackward<float> f32;
  AttentionBackward<bf16> b16;
};

template <class T>
const AttentionForward<T>& attention_forward_kernels() {
  if constexpr (std::is_same_v<T, float>)
    return kernels<AttentionForwardKernels>().f32;
  else
    return kernels<AttentionForwardKernels>().b16;
}

template <class T>
const AttentionBackward<T>& attention_backward_kernels() {
  if constexpr (std::is_same_v<T, float>)
    return kernels<AttentionBackwardKernels>().f32;
  else
    return kernels<AttentionBackwardKernels>().b16;
}

}  // namespace fsdp::device::cpu

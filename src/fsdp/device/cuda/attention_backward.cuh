// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention's gradients on tensor cores, in two passes without atomics: a thread block owns dk and dv of a block of
/// keys (attention_backward_keys.cu), or dq of a block of queries (attention_backward.cu). This header contains the
/// code shared by both: tile sizes, gradients of scores, stores.
#pragma once

#include "attention.cuh"
#include "tensor_cores.cuh"

namespace fsdp::device::cuda {

/// Tile sizes for heads of up to D columns, chosen so that a warp's sums and scores stay in registers.
template <int D>
struct BackwardTiles {
  static constexpr int warps = D <= 192 ? 4 : 8;
  static constexpr int threads = warps * static_cast<int>(warp);
  static constexpr int rows = warps * 16;  ///< number of keys or queries that a thread block owns, 16 per warp
  static constexpr bool apart = D > 128;   ///< whether dk and dv need separate passes, since each fills the registers
  static constexpr int queries = D <= 64 ? 64 : 32;  ///< queries per tile in the pass over keys
  static constexpr int keys = D <= 128 ? 64 : 32;    ///< keys per tile in the pass over queries

  // Thread blocks per multiprocessor in each pass.
  static constexpr int keys_blocks = D <= 32 ? 4 : D <= 80 ? 3 : D <= 192 ? 2 : 1;
  static constexpr int queries_blocks = D <= 64 ? 4 : D <= 80 ? 3 : D <= 192 ? 2 : 1;
};

/// Turns `score` into the probability and `product` (dout . v) into the gradient of the score, without the scale.
__device__ __forceinline__ void differentiate(float scale_log2, float lse_log2, float out_product, float& score,
                                              float& product) {
  score = exp2_flushed(score * scale_log2 - lse_log2);
  product = score * (product - out_product);
}

/// Stores a warp's sums to rows [first, first + 16) of one head of `to`; rows from `end` on are not stored.
template <int D, class T>
__device__ __forceinline__ void store_rows(const float (&sums)[1][D / 8][4], T* to, std::int64_t stride, int first,
                                           int end, int columns, float factor) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + result_row(half);
    if (row >= end) continue;
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
      if (n * 8 < columns)
        store_pair(to + row * stride, result_column(n), sums[0][n][2 * half] * factor,
                   sums[0][n][2 * half + 1] * factor);
  }
}

/// Launches the pass over blocks of keys.
template <class T>
void attention_backward_keys(Lane, const AttentionSizes&, const BackwardArguments<T>&);

}  // namespace fsdp::device::cuda

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention on the tensor cores: blocks of queries against tiles of keys with an online softmax (Dao 2023,
/// FlashAttention-2). Nothing of size length x length exists.
#include "attention.cuh"
#include "tensor_cores.cuh"

namespace fsdp::device::cuda {
namespace {

constexpr int warps = 4;
constexpr int row_tiles = 2;  ///< of 16 queries, a warp: each tile of keys that a warp reads serves 32 queries
constexpr int queries = warps * 16 * row_tiles;
constexpr int keys = 64;

/// Queries, and two tiles each of keys and values: one in use, one on its way.
template <int D>
constexpr std::size_t shared_bytes = static_cast<std::size_t>(queries + 4 * keys) * tile_stride<D> * 2;

/// A warp's rows: their largest score (times log2 e) and sum so far. Lanes of four share a row.
struct RowStatistics {
  float most[row_tiles][2];
  float total[row_tiles][2];
};

/// Scores become probabilities relative to each row's largest score so far; what was summed before is scaled to that.
template <int D, int N>
__device__ __forceinline__ void advance(float (&scores)[row_tiles][N][4], float (&sums)[row_tiles][D / 8][4],
                                        RowStatistics& rows) {
#pragma unroll
  for (int m = 0; m < row_tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = rows.most[m][half];
#pragma unroll
      for (int n = 0; n < N; ++n) most = fmaxf(most, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
      most = fmaxf(most, exchange(most, 1));
      most = fmaxf(most, exchange(most, 2));
      const float origin = most == -INFINITY ? 0.0f : most;  // a row that has seen no key yet
      const float kept = exp2f(rows.most[m][half] - origin);
      float total = 0;
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) total += scores[m][n][i] = exp2f(scores[m][n][i] - origin);
      rows.most[m][half] = most;
      rows.total[m][half] = rows.total[m][half] * kept + total;
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) sums[m][n][i] *= kept;
    }
}

template <class T, int D>
__global__ void __launch_bounds__(warps* warp)
    forward(AttentionSizes s, Rows<const T> q, Rows<const T> k, Rows<const T> v, Rows<T> out, float* lse) {
  const int blocks = (s.length + queries - 1) / queries;
  const AttentionBlock block(blockIdx.x, s.heads, blocks);
  const int first_query = (blocks - 1 - block.index) * queries;  // the longest rows first
  const std::int64_t origin = block.sequence * s.length, kv = block.head / s.group() * D;
  T* const q_tile = reinterpret_cast<T*>(shared_memory());
  T* const k_tiles = q_tile + queries * tile_stride<D>;
  T* const v_tiles = k_tiles + 2 * keys * tile_stride<D>;
  const auto copy_keys = [&](int tile) {
    const int at = tile % 2 * keys * tile_stride<D>;
    copy_tile<D, keys>(k_tiles + at, k.row(origin) + kv, k.stride, tile * keys, s.length);
    copy_tile<D, keys>(v_tiles + at, v.row(origin) + kv, v.stride, tile * keys, s.length);
    end_copies();
  };

  const int last_query = (first_query + queries < s.length ? first_query + queries : s.length) - 1;
  const int first_tile = s.first_key(origin, first_query) / keys, last_tile = last_query / keys;
  copy_tile<D, queries>(q_tile, q.row(origin) + block.head * D, q.stride, first_query, s.length);
  copy_keys(first_tile);

  const int warp_row = static_cast<int>(threadIdx.x / warp) * 16 * row_tiles;
  const int own_query = first_query + warp_row + result_row(0);  // of row tile 0, half 0
  const auto query_of = [&](int m, int half) { return own_query + m * 16 + half * 8; };
  int lowest[row_tiles][2];
  RowStatistics rows;
  float sums[row_tiles][D / 8][4] = {};
#pragma unroll
  for (int m = 0; m < row_tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      lowest[m][half] = query_of(m, half) < s.length ? s.first_key(origin, query_of(m, half)) : 0;
      rows.most[m][half] = -INFINITY;
      rows.total[m][half] = 0;
    }

  for (int tile = first_tile; tile <= last_tile; ++tile) {
    if (tile < last_tile) {
      copy_keys(tile + 1);
      wait_for_copies<1>();
    } else {
      wait_for_copies<0>();
    }
    __syncthreads();
    const int at = tile % 2 * keys * tile_stride<D>;
    float scores[row_tiles][keys / 8][4] = {};
    multiply_by_transposed<D>(scores, q_tile + warp_row * tile_stride<D>, k_tiles + at);
    const bool all_seen = s.sees_all() && tile * keys + keys - 1 <= first_query + warp_row;
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int n = 0; n < keys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = tile * keys + result_column(n) + i % 2;
          const bool seen = all_seen || (key <= query_of(m, i / 2) && key >= lowest[m][i / 2]);
          scores[m][n][i] = seen ? scores[m][n][i] * (s.scale * log2_e) : -INFINITY;
        }
    advance<D>(scores, sums, rows);
    multiply_rounded<D>(sums, scores, v_tiles + at);
    __syncthreads();  // the tile is free for the copy after the next
  }

#pragma unroll
  for (int m = 0; m < row_tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = rows.total[m][half];
      total += exchange(total, 1);
      total += exchange(total, 2);
      if (query_of(m, half) >= s.length) continue;
      T* const row = out.row(origin + query_of(m, half)) + block.head * D;
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
        store_pair(row, result_column(n), sums[m][n][2 * half] / total, sums[m][n][2 * half + 1] / total);
      if (threadIdx.x % 4 == 0)
        lse[(block.sequence * s.heads + block.head) * s.length + query_of(m, half)] =
            (rows.most[m][half] + log2f(total)) * ln_2;
    }
}

template <class T, int D>
void on_tensor_cores(Lane lane, const AttentionSizes& s, Tensor<const T> q, Tensor<const T> k, Tensor<const T> v,
                     Tensor<T> out, Tensor<float> lse) {
  const std::int64_t blocks = s.sequences * s.heads * ceil_divide(s.length, queries);
  launch(lane, "attention", forward<T, D>, grid_of_blocks(blocks, warps * warp), shared_bytes<D>, s, Rows<const T>(q),
         Rows<const T>(k), Rows<const T>(v), Rows<T>(out), lse.data());
}

}  // namespace

template <class T>
void attention(Lane lane, const AttentionShape& shape, Tensor<const T> q, Tensor<const T> k, Tensor<const T> v,
               Tensor<T> out, Tensor<float> lse, Tensor<const std::int32_t> first) {
  if (shape.tokens() == 0) return;
  const AttentionSizes s(shape, first);
  if constexpr (sizeof(T) == 2)
    if (!lane.plain && rows_are_wide(q, k, v, out)) {
      if (s.head_dim == 64) return on_tensor_cores<T, 64>(lane, s, q, k, v, out, lse);
      if (s.head_dim == 128) return on_tensor_cores<T, 128>(lane, s, q, k, v, out, lse);
    }
  attention_plain(lane, s, q, k, v, out, lse);
}

#define FSDP_ATTENTION(T)                                                                                    \
  template void attention<T>(Lane, const AttentionShape&, Tensor<const T>, Tensor<const T>, Tensor<const T>, \
                             Tensor<T>, Tensor<float>, Tensor<const std::int32_t>);
FSDP_ATTENTION(float)
FSDP_ATTENTION(bf16)
FSDP_ATTENTION(f16)

}  // namespace fsdp::device::cuda

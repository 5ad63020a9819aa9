// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention on tensor cores: blocks of queries against tiles of keys with an online softmax (Dao 2023,
/// FlashAttention-2). No matrix of size length x length is stored.
#include "attention.cuh"
#include "tensor_cores.cuh"

namespace fsdp::device::cuda {
namespace {

/// A row's largest scaled score so far, and a lane's part of its sum. They are stored in shared memory, because
/// registers are full during the matmuls.
struct RowStatistics {
  float most, total;
};

/// Tile sizes for heads of up to D columns, chosen so that a warp's sums and scores stay in registers.
template <int D>
struct ForwardTiles {
  static constexpr int row_tiles = D <= 128 ? 2 : 1;  ///< per warp, of 16 queries each; all share one read of the keys
  static constexpr int warps = D <= 128 ? 4 : 8;
  static constexpr int blocks = D <= 32 ? 4 : D <= 64 ? 3 : D <= 128 ? 2 : 1;  ///< thread blocks per multiprocessor
  static constexpr int keys = 64;
  static constexpr int queries = warps * 16 * row_tiles;
  static constexpr int threads = warps * static_cast<int>(warp);
  /// Bytes of shared memory: queries; two tiles each of keys and values, one in use and one loading; the first key that
  /// each query attends to; every thread's RowStatistics.
  static constexpr std::size_t shared_bytes = static_cast<std::size_t>(queries + 4 * keys) * tile_stride<D> * 2 +
                                              queries * sizeof(std::int32_t) +
                                              2 * row_tiles * threads * sizeof(RowStatistics);
};

/// Turns scores into probabilities relative to each row's largest score so far, and rescales the previous sums to it.
/// `scale` is positive and includes the factor log2(e), so that one instruction scales a score and subtracts the
/// largest. `rows` are this lane's two rows of every row tile, `Stride` apart.
template <int D, int Stride, int M, int N>
__device__ __forceinline__ void advance(float (&scores)[M][N][4], float (&sums)[M][D / 8][4], RowStatistics* rows,
                                        float scale) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = -INFINITY;
#pragma unroll
      for (int n = 0; n < N; ++n) most = fmaxf(most, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
      most = fmaxf(most, exchange(most, 1));
      const RowStatistics before = rows[(2 * m + half) * Stride];
      most = fmaxf(before.most, fmaxf(most, exchange(most, 2)) * scale);
      const float origin = most == -INFINITY ? 0.0f : most;  // -infinity: the row has not attended to any key yet
      const float kept = exp2_flushed(before.most - origin);
      float total = 0;
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i)
          total += scores[m][n][i] = exp2_flushed(scores[m][n][i] * scale - origin);
      rows[(2 * m + half) * Stride] = {most, before.total * kept + total};
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) sums[m][n][i] *= kept;
    }
}

template <class T, int D>
__global__ void __launch_bounds__(ForwardTiles<D>::threads, ForwardTiles<D>::blocks)
    forward(AttentionSizes s, Rows<const T> q, Rows<const T> k, Rows<const T> v, Rows<T> out, float* lse) {
  using Tiles = ForwardTiles<D>;
  constexpr int queries = Tiles::queries, keys = Tiles::keys, row_tiles = Tiles::row_tiles;
  const int blocks = (s.length + queries - 1) / queries;
  const AttentionBlock block(blockIdx.x, s.heads, blocks);
  const int first_query = (blocks - 1 - block.index) * queries;  // longest rows first
  const int last_query = (first_query + queries < s.length ? first_query + queries : s.length) - 1;
  const int origin = block.sequence * s.length, kv = block.head / s.group() * s.columns();
  const int first_tile = s.first_key(origin, first_query) / keys, last_tile = last_query / keys;
  T* const q_tile = reinterpret_cast<T*>(shared_memory());
  T* const k_tiles = q_tile + queries * tile_stride<D>;
  T* const v_tiles = k_tiles + 2 * keys * tile_stride<D>;
  std::int32_t* const first_keys = reinterpret_cast<std::int32_t*>(v_tiles + 2 * keys * tile_stride<D>);

  TileCopies<D, queries, Tiles::threads, T>(q.row(origin) + block.head * s.columns(), q.stride, first_query,
                                            s.columns())
      .next(q_tile, s.length - first_query);
  TileCopies<D, keys, Tiles::threads, T> k_copies(k.row(origin) + kv, k.stride, first_tile * keys, s.columns());
  TileCopies<D, keys, Tiles::threads, T> v_copies(v.row(origin) + kv, v.stride, first_tile * keys, s.columns());
  const auto copy_keys = [&](int tile) {
    const int at = tile % 2 * keys * tile_stride<D>, left = s.length - tile * keys;
    k_copies.next(k_tiles + at, left);
    v_copies.next(v_tiles + at, left);
    end_copies();
  };
  copy_keys(first_tile);
  if (threadIdx.x < queries) {
    const int query = first_query + static_cast<int>(threadIdx.x);
    first_keys[threadIdx.x] = s.first_key(origin, query < last_query ? query : last_query);
  }

  const int warp_row = static_cast<int>(threadIdx.x / warp) * 16 * row_tiles;
  const int own_query = opaque(first_query + warp_row + result_row(0));  // row of row tile 0, half 0
  const auto query_of = [&](int m, int half) { return own_query + m * 16 + half * 8; };
  RowStatistics* const rows = reinterpret_cast<RowStatistics*>(first_keys + queries) + threadIdx.x;
  float sums[row_tiles][D / 8][4] = {};
#pragma unroll
  for (int m = 0; m < row_tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows[(2 * m + half) * Tiles::threads] = {-INFINITY, 0};
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
    if (tile * keys < first_keys[warp_row + 16 * row_tiles - 1] || tile * keys + keys - 1 > (own_query & ~7)) {
#pragma unroll
      for (int m = 0; m < row_tiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int query = query_of(m, half), lowest = first_keys[query - first_query];
          hide_unseen(scores[m], half, tile * keys, lowest, query);
        }
    }
    advance<D, Tiles::threads>(scores, sums, rows, s.scale_log2);
    multiply_rounded<D>(sums, scores, v_tiles + at);
    __syncthreads();  // the tile may now be overwritten by the copy after the next
  }

  // Recomputed here, so that it occupies no registers during the loop over tiles.
  const AttentionBlock end(opaque(blockIdx.x), s.heads, blocks);
  const int end_origin = end.sequence * s.length;
#pragma unroll
  for (int m = 0; m < row_tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      auto [most, total] = rows[(2 * m + half) * Tiles::threads];
      total += exchange(total, 1);
      total += exchange(total, 2);
      if (query_of(m, half) >= s.length) continue;
      const float factor = 1.0f / total;
      T* const row = out.row(end_origin + query_of(m, half)) + end.head * s.columns();
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
        if (n * 8 < s.columns())
          store_pair(row, result_column(n), sums[m][n][2 * half] * factor, sums[m][n][2 * half + 1] * factor);
      if (threadIdx.x % 4 == 0)
        lse[s.statistic(end_origin, end.head, query_of(m, half))] = (most + log2f(total)) * ln_2;
    }
}

}  // namespace

template <class T>
void compute(Lane lane, const Attention<T>& op, Scratch memory) {
  const AttentionShape& shape = op.shape;
  if (shape.tokens() == 0) return;
  const AttentionSizes s(shape, first_rows(lane, shape.documents, shape.tokens(), memory));
  if constexpr (sizeof(T) == 2)
    if (!lane.plain && fits_tiles(s.head_dim) && rows_are_wide(op.q, op.k, op.v, op.out))
      return with_tile_columns(s.head_dim, [&](auto columns) {
        constexpr int D = decltype(columns)::value;
        using Tiles = ForwardTiles<D>;
        const std::int64_t blocks = s.sequences * s.heads * ceil_divide(s.length, Tiles::queries);
        launch(lane, "attention", forward<T, D>, grid_of_blocks(blocks, Tiles::threads), Tiles::shared_bytes, s,
               Rows<const T>(op.q), Rows<const T>(op.k), Rows<const T>(op.v), Rows<T>(op.out), op.lse.data());
      });
  attention_plain(lane, s, op);
}

FSDP_FOR_TYPES(compute, Lane, Attention, Scratch)

}  // namespace fsdp::device::cuda

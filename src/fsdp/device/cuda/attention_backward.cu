// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention's backward, and its pass over blocks of queries, in which each thread block owns the dq of its queries.
/// Probabilities are recomputed from forward's log sum exp. No atomics are used.
#include "attention_backward.cuh"
#include "scratch.hpp"

namespace fsdp::device::cuda {
namespace {

/// Bytes of shared memory: own rows of q and dout, two tiles each of k and v, and the first key that each query attends
/// to.
template <int D>
constexpr std::size_t queries_shared =
    static_cast<std::size_t>(2 * BackwardTiles<D>::rows + 4 * BackwardTiles<D>::keys) * tile_stride<D> * 2 +
    BackwardTiles<D>::rows * sizeof(std::int32_t);

/// Computes dq of a block of queries.
template <class T, int D>
__global__ void __launch_bounds__(BackwardTiles<D>::threads, BackwardTiles<D>::queries_blocks)
    backward_queries(AttentionSizes s, BackwardArguments<T> b) {
  using Tiles = BackwardTiles<D>;
  constexpr int rows = Tiles::rows, keys = Tiles::keys, threads = Tiles::threads;
  const int blocks = (s.length + rows - 1) / rows;
  const AttentionBlock block(blockIdx.x, s.heads, blocks);
  const int first_query = (blocks - 1 - block.index) * rows;  // longest rows first
  const int last_query = (first_query + rows < s.length ? first_query + rows : s.length) - 1;
  const int first_tile = s.first_key(block.sequence * s.length, first_query) / keys, last_tile = last_query / keys;
  const int origin = block.sequence * s.length;
  const int own = block.head * s.columns(), kv = block.head / s.group() * s.columns();
  T* const q_tile = reinterpret_cast<T*>(shared_memory());
  T* const dout_tile = q_tile + rows * tile_stride<D>;
  T* const k_tiles = dout_tile + rows * tile_stride<D>;
  T* const v_tiles = k_tiles + 2 * keys * tile_stride<D>;
  std::int32_t* const first_keys = reinterpret_cast<std::int32_t*>(v_tiles + 2 * keys * tile_stride<D>);

  TileCopies<D, rows, threads, T>(b.q.row(origin) + own, b.q.stride, first_query, s.columns())
      .next(q_tile, s.length - first_query);
  TileCopies<D, rows, threads, T>(b.dout.row(origin) + own, b.dout.stride, first_query, s.columns())
      .next(dout_tile, s.length - first_query);
  TileCopies<D, keys, threads, T> k_copies(b.k.row(origin) + kv, b.k.stride, first_tile * keys, s.columns());
  TileCopies<D, keys, threads, T> v_copies(b.v.row(origin) + kv, b.v.stride, first_tile * keys, s.columns());
  const auto copy_keys = [&](int tile) {
    const int at = tile % 2 * keys * tile_stride<D>, left = s.length - tile * keys;
    k_copies.next(k_tiles + at, left);
    v_copies.next(v_tiles + at, left);
    end_copies();
  };
  copy_keys(first_tile);
  if (threadIdx.x < rows) {
    const int query = first_query + static_cast<int>(threadIdx.x);
    first_keys[threadIdx.x] = s.first_key(origin, query < last_query ? query : last_query);
  }
  const int warp_row = static_cast<int>(threadIdx.x / warp) * 16;
  const int own_query = opaque(first_query + warp_row + result_row(0));  // row of half 0
  float lse_log2[2], out_products[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = own_query + 8 * half;
    const std::int64_t at = s.statistic(origin, block.head, query < last_query ? query : last_query);
    lse_log2[half] = b.lse[at] * log2_e;
    out_products[half] = b.products[at];
  }

  float dq[1][D / 8][4] = {};
  for (int tile = first_tile; tile <= last_tile; ++tile) {
    if (tile < last_tile) {
      copy_keys(tile + 1);
      wait_for_copies<1>();
    } else {
      wait_for_copies<0>();
    }
    __syncthreads();
    const T* const k_tile = k_tiles + tile % 2 * keys * tile_stride<D>;
    const T* const v_tile = v_tiles + tile % 2 * keys * tile_stride<D>;
    float scores[1][keys / 8][4] = {}, products[1][keys / 8][4] = {};
    multiply_by_transposed<D>(scores, q_tile + warp_row * tile_stride<D>, k_tile);
    multiply_by_transposed<D>(products, dout_tile + warp_row * tile_stride<D>, v_tile);
    if (tile * keys < first_keys[warp_row + 15] || tile * keys + keys - 1 > (own_query & ~7)) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = own_query + 8 * half, lowest = first_keys[query - first_query];
        hide_unseen(scores[0], half, tile * keys, lowest, query);
      }
    }
#pragma unroll
    for (int n = 0; n < keys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        differentiate(s.scale_log2, lse_log2[i / 2], out_products[i / 2], scores[0][n][i], products[0][n][i]);
    multiply_rounded<D>(dq, products, k_tile);
    __syncthreads();  // the tile may now be overwritten by the copy after the next
  }
  store_rows<D>(dq, b.dq.row(origin) + own, b.dq.stride, first_query + warp_row, s.length, s.columns(), s.scale);
}

}  // namespace

template <class T>
void compute(Lane lane, const AttentionBackward<T>& op, Scratch memory) {
  const AttentionShape& shape = op.shape;
  if (shape.tokens() == 0) return;
  const AttentionSizes s(shape, first_rows(lane, shape.documents, shape.tokens(), memory));
  const auto products = memory.as<float>(op.lse.shape(), attention_products_at(shape));
  const BackwardArguments<T> b{op.q, op.k, op.v, op.dout, op.lse.data(), products.data(), op.dq, op.dk, op.dv};
  attention_products(lane, s, op, products.data());
  if constexpr (sizeof(T) == 2)
    if (!lane.plain && fits_tiles(s.head_dim) && rows_are_wide(op.q, op.k, op.v, op.dout, op.dq, op.dk, op.dv)) {
      attention_backward_keys(lane, s, b);
      return with_tile_columns(s.head_dim, [&](auto columns) {
        constexpr int D = decltype(columns)::value;
        using Tiles = BackwardTiles<D>;
        const std::int64_t blocks = s.sequences * s.heads * ceil_divide(s.length, Tiles::rows);
        launch(lane, "attention_backward", backward_queries<T, D>, grid_of_blocks(blocks, Tiles::threads),
               queries_shared<D>, s, b);
      });
    }
  attention_backward_plain(lane, s, op, products.data());
}

FSDP_FOR_TYPES(compute, Lane, AttentionBackward, Scratch)

}  // namespace fsdp::device::cuda

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention's gradients on the tensor cores, in two passes that own what they sum: a block of keys its dk and dv, a
/// block of queries its dq. Probabilities are made again from the forward's log sum exp; nothing is added atomically.
#include "attention.cuh"
#include "tensor_cores.cuh"

namespace fsdp::device::cuda {
namespace {

constexpr int warps = 4;
constexpr int block_rows = warps * 16;  ///< keys or queries that a block owns, 16 a warp
template <int D>
constexpr int keys_queries = D == 64 ? 64 : 32;  ///< queries a tile of the keys' pass: its two sums fill the registers
constexpr int queries_keys = 64;                 ///< keys a tile of the queries' pass

template <class T>
struct Arguments {
  Rows<const T> q, k, v, dout;
  const float* lse;
  const float* products;
  Rows<T> dq, dk, dv;

  Arguments(const AttentionBackward<T>& b)
      : q(b.q),
        k(b.k),
        v(b.v),
        dout(b.dout),
        lse(b.lse.data()),
        products(b.products.data()),
        dq(b.dq),
        dk(b.dk),
        dv(b.dv) {}
};

/// What a score's gradient needs of its query: log sum exp times log2 e, dout . out, and the first key seen. A query
/// beyond the sequence sees none.
struct Query {
  float lse, product;
  std::int32_t first_key;
};

__device__ __forceinline__ Query query_at(const AttentionSizes& s, const float* lse, const float* products,
                                          std::int64_t sequence, std::int64_t head, int index) {
  if (index >= s.length) return {0, 0, 0x7fffffff};
  const std::int64_t at = (sequence * s.heads + head) * s.length + index;
  return {lse[at] * log2_e, products[at], s.first_key(sequence * s.length, index)};
}

/// score becomes the probability, product (dout . v) the gradient of the score but for the scale.
__device__ __forceinline__ void differentiate(const AttentionSizes& s, const Query& query, int query_index, int key,
                                              float& score, float& product) {
  const bool seen = key <= query_index && key >= query.first_key;
  score = seen ? exp2_flushed(score * (s.scale * log2_e) - query.lse) : 0.0f;
  product = score * (product - query.product);
}

/// A warp's sums as rows [first, first + 16) of one head of `to`; rows from `end` on do not exist.
template <int D, class T>
__device__ __forceinline__ void store_rows(const float (&sums)[1][D / 8][4], T* to, std::int64_t stride, int first,
                                           int end, float factor) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + result_row(half);
    if (row >= end) continue;
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
      store_pair(to + row * stride, result_column(n), sums[0][n][2 * half] * factor, sums[0][n][2 * half + 1] * factor);
  }
}

/// The first tile, from `begin` on, none of whose queries sees `key` or one before it: documents and windows end in
/// order.
__device__ __forceinline__ int end_of_queries(const AttentionSizes& s, std::int64_t origin, int begin, int tiles,
                                              int tile_rows, int key) {
  if (s.sees_all()) return tiles;
  int low = begin, high = tiles;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (s.first_key(origin, middle * tile_rows) > key)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

template <int D>
constexpr std::size_t keys_shared = (2 * block_rows + 4 * keys_queries<D>)*tile_stride<D> * 2 +
                                    2 * keys_queries<D> * sizeof(Query);

/// dk and dv of a block of keys. Scores stand transposed, [keys, queries]: so they are the left operands of both sums.
template <class T, int D>
__global__ void __launch_bounds__(warps* warp) backward_keys(AttentionSizes s, Arguments<T> b) {
  constexpr int queries = keys_queries<D>;
  const AttentionBlock block(blockIdx.x, s.kv_heads, (s.length + block_rows - 1) / block_rows);
  const int first_key = block.index * block_rows;  // the longest columns first
  const std::int64_t origin = block.sequence * s.length, kv = block.head * D;
  T* const k_tile = reinterpret_cast<T*>(shared_memory());
  T* const v_tile = k_tile + block_rows * tile_stride<D>;
  T* const q_tiles = v_tile + block_rows * tile_stride<D>;
  T* const dout_tiles = q_tiles + 2 * queries * tile_stride<D>;
  Query* const query_tiles = reinterpret_cast<Query*>(dout_tiles + 2 * queries * tile_stride<D>);

  const int last_key = (first_key + block_rows < s.length ? first_key + block_rows : s.length) - 1;
  const int first_tile = first_key / queries;
  const int tiles =
      end_of_queries(s, origin, first_tile, (s.length + queries - 1) / queries, queries, last_key) - first_tile;
  const int steps = tiles * static_cast<int>(s.group());  // tiles of the first head, then of the next
  const auto copy_queries = [&](int step) {
    const std::int64_t head = block.head * s.group() + step / tiles;
    const int first = (first_tile + step % tiles) * queries, at = step % 2 * queries;
    copy_tile<D, queries>(q_tiles + at * tile_stride<D>, b.q.row(origin) + head * D, b.q.stride, first, s.length);
    copy_tile<D, queries>(dout_tiles + at * tile_stride<D>, b.dout.row(origin) + head * D, b.dout.stride, first,
                          s.length);
    end_copies();
    for (int i = threadIdx.x; i < queries; i += blockDim.x)
      query_tiles[at + i] = query_at(s, b.lse, b.products, block.sequence, head, first + i);
  };

  copy_tile<D, block_rows>(k_tile, b.k.row(origin) + kv, b.k.stride, first_key, s.length);
  copy_tile<D, block_rows>(v_tile, b.v.row(origin) + kv, b.v.stride, first_key, s.length);
  copy_queries(0);
  const int warp_row = static_cast<int>(threadIdx.x / warp) * 16;
  float dk[1][D / 8][4] = {}, dv[1][D / 8][4] = {};
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) {
      copy_queries(step + 1);
      wait_for_copies<1>();
    } else {
      wait_for_copies<0>();
    }
    __syncthreads();
    const int at = step % 2 * queries, first_query = (first_tile + step % tiles) * queries;
    const T* const q_tile = q_tiles + at * tile_stride<D>;
    const T* const dout_tile = dout_tiles + at * tile_stride<D>;
    float scores[1][queries / 8][4] = {}, products[1][queries / 8][4] = {};
    multiply_by_transposed<D>(scores, k_tile + warp_row * tile_stride<D>, q_tile);
    multiply_by_transposed<D>(products, v_tile + warp_row * tile_stride<D>, dout_tile);
#pragma unroll
    for (int n = 0; n < queries / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = result_column(n) + i % 2;
        differentiate(s, query_tiles[at + column], first_query + column, first_key + warp_row + result_row(i / 2),
                      scores[0][n][i], products[0][n][i]);
      }
    multiply_rounded<D>(dv, scores, dout_tile);
    multiply_rounded<D>(dk, products, q_tile);
    __syncthreads();  // the tile is free for the copy after the next
  }
  store_rows<D>(dk, b.dk.row(origin) + kv, b.dk.stride, first_key + warp_row, s.length, s.scale);
  store_rows<D>(dv, b.dv.row(origin) + kv, b.dv.stride, first_key + warp_row, s.length, 1.0f);
}

template <int D>
constexpr std::size_t queries_shared = static_cast<std::size_t>(2 * block_rows + 4 * queries_keys) * tile_stride<D> * 2;

/// dq of a block of queries.
template <class T, int D>
__global__ void __launch_bounds__(warps* warp) backward_queries(AttentionSizes s, Arguments<T> b) {
  constexpr int keys = queries_keys;
  const int blocks = (s.length + block_rows - 1) / block_rows;
  const AttentionBlock block(blockIdx.x, s.heads, blocks);
  const int first_query = (blocks - 1 - block.index) * block_rows;  // the longest rows first
  const std::int64_t origin = block.sequence * s.length, own = block.head * D, kv = block.head / s.group() * D;
  T* const q_tile = reinterpret_cast<T*>(shared_memory());
  T* const dout_tile = q_tile + block_rows * tile_stride<D>;
  T* const k_tiles = dout_tile + block_rows * tile_stride<D>;
  T* const v_tiles = k_tiles + 2 * keys * tile_stride<D>;
  const auto copy_keys = [&](int tile) {
    const int at = tile % 2 * keys * tile_stride<D>;
    copy_tile<D, keys>(k_tiles + at, b.k.row(origin) + kv, b.k.stride, tile * keys, s.length);
    copy_tile<D, keys>(v_tiles + at, b.v.row(origin) + kv, b.v.stride, tile * keys, s.length);
    end_copies();
  };

  const int last_query = (first_query + block_rows < s.length ? first_query + block_rows : s.length) - 1;
  const int first_tile = s.first_key(origin, first_query) / keys, last_tile = last_query / keys;
  copy_tile<D, block_rows>(q_tile, b.q.row(origin) + own, b.q.stride, first_query, s.length);
  copy_tile<D, block_rows>(dout_tile, b.dout.row(origin) + own, b.dout.stride, first_query, s.length);
  copy_keys(first_tile);
  const int warp_row = static_cast<int>(threadIdx.x / warp) * 16;
  Query query[2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
    query[half] = query_at(s, b.lse, b.products, block.sequence, block.head, first_query + warp_row + result_row(half));

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
#pragma unroll
    for (int n = 0; n < keys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        differentiate(s, query[i / 2], first_query + warp_row + result_row(i / 2),
                      tile * keys + result_column(n) + i % 2, scores[0][n][i], products[0][n][i]);
    multiply_rounded<D>(dq, products, k_tile);
    __syncthreads();  // the tile is free for the copy after the next
  }
  store_rows<D>(dq, b.dq.row(origin) + own, b.dq.stride, first_query + warp_row, s.length, s.scale);
}

template <class T, int D>
void on_tensor_cores(Lane lane, const AttentionSizes& s, const AttentionBackward<T>& b) {
  const std::int64_t blocks = s.sequences * ceil_divide(s.length, block_rows);
  launch(lane, "attention_backward", backward_keys<T, D>, grid_of_blocks(blocks * s.kv_heads, warps * warp),
         keys_shared<D>, s, Arguments<T>(b));
  launch(lane, "attention_backward", backward_queries<T, D>, grid_of_blocks(blocks * s.heads, warps * warp),
         queries_shared<D>, s, Arguments<T>(b));
}

}  // namespace

template <class T>
void attention_backward(Lane lane, const AttentionShape& shape, const AttentionBackward<T>& b) {
  if (shape.tokens() == 0) return;
  const AttentionSizes s(shape, b.first);
  attention_products(lane, s, b);
  if constexpr (sizeof(T) == 2)
    if (!lane.plain && rows_are_wide(b.q, b.k, b.v, b.dout, b.dq, b.dk, b.dv)) {
      if (s.head_dim == 64) return on_tensor_cores<T, 64>(lane, s, b);
      if (s.head_dim == 128) return on_tensor_cores<T, 128>(lane, s, b);
    }
  attention_backward_plain(lane, s, b);
}

template void attention_backward<float>(Lane, const AttentionShape&, const AttentionBackward<float>&);
template void attention_backward<bf16>(Lane, const AttentionShape&, const AttentionBackward<bf16>&);
template void attention_backward<f16>(Lane, const AttentionShape&, const AttentionBackward<f16>&);

}  // namespace fsdp::device::cuda

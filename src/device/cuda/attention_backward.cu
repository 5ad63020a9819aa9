// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention's gradients on the tensor cores, in passes that own what they sum: a block of keys its dk and dv, a block
/// of queries its dq. Probabilities are made again from the forward's log sum exp; nothing is added atomically.
#include "attention.cuh"
#include "tensor_cores.cuh"

namespace fsdp::device::cuda {
namespace {

/// How a block works on heads of up to D columns, so that a warp's sums and scores stay in registers.
template <int D>
struct BackwardTiles {
  static constexpr int warps = D <= 192 ? 4 : 8;
  static constexpr int threads = warps * static_cast<int>(warp);
  static constexpr int rows = warps * 16;            ///< keys or queries that a block owns, 16 a warp
  static constexpr bool apart = D > 128;             ///< dk and dv fill the registers: each has a pass of its own
  static constexpr int queries = D <= 64 ? 64 : 32;  ///< a tile of the keys' pass
  static constexpr int keys = D <= 128 ? 64 : 32;    ///< a tile of the queries' pass

  // Blocks on a multiprocessor, of each pass.
  static constexpr int keys_blocks = D <= 32 ? 4 : D <= 80 ? 3 : D <= 192 ? 2 : 1;
  static constexpr int queries_blocks = D <= 64 ? 4 : D <= 80 ? 3 : D <= 192 ? 2 : 1;
};

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

/// score becomes the probability, product (dout . v) the gradient of the score but for the scale.
__device__ __forceinline__ void differentiate(float scale_log2, float lse_log2, float out_product, float& score,
                                              float& product) {
  score = exp2_flushed(score * scale_log2 - lse_log2);
  product = score * (product - out_product);
}

/// A warp's sums as rows [first, first + 16) of one head of `to`; rows from `end` on do not exist.
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

/// What a block of keys needs of the queries of a tile, beside their rows: by query.
template <int N>
struct QueryNumbers {
  float lse[N], products[N];
  std::int32_t first_rows[N];  ///< of their documents
};

/// Copies tiles of the queries that a block of keys needs: all of its first head's, then the next head's.
template <class T, int D>
class QueryCopies {
  using Tiles = BackwardTiles<D>;

 public:
  using Numbers = QueryNumbers<Tiles::queries>;

  /// Tiles [first_tile, end_tile) of `head` and of those after it.
  __device__ __forceinline__ QueryCopies(const Arguments<T>& b, const AttentionSizes& s, int origin, int head,
                                         int first_tile, int end_tile)
      : q_(b.q.row(origin) + head * s.columns(), b.q.stride, first_tile * Tiles::queries, s.columns()),
        dout_(b.dout.row(origin) + head * s.columns(), b.dout.stride, first_tile * Tiles::queries, s.columns()),
        origin_(origin),
        head_(head),
        first_tile_(first_tile),
        end_tile_(end_tile),
        tile_(first_tile) {}

  /// One group of copies.
  __device__ __forceinline__ void next(const Arguments<T>& b, const AttentionSizes& s, T* q_tile, T* dout_tile,
                                       Numbers& numbers) {
    const int first = tile_ * Tiles::queries, left = s.length - first;
    q_.next(q_tile, left);
    dout_.next(dout_tile, left);
    static_assert(Tiles::threads >= 2 * Tiles::queries);
    const int i = static_cast<int>(threadIdx.x) % Tiles::queries;
    const bool is_lse = threadIdx.x < Tiles::queries;
    if (threadIdx.x < 2 * Tiles::queries)
      copy_word_async((is_lse ? numbers.lse : numbers.products) + i,
                      (is_lse ? b.lse : b.products) + s.statistic(origin_, head_, first) + i, i < left);
    if (s.first != nullptr && is_lse) copy_word_async(numbers.first_rows + i, s.first + origin_ + first + i, i < left);
    end_copies();
    if (++tile_ < end_tile_) return;
    ++head_;
    tile_ = first_tile_;
    const int rows = (end_tile_ - first_tile_) * Tiles::queries;
    q_.skip(s.columns() - rows * b.q.stride);
    dout_.skip(s.columns() - rows * b.dout.stride);
  }

 private:
  TileCopies<D, Tiles::queries, Tiles::threads, T> q_, dout_;
  int origin_, head_, first_tile_, end_tile_, tile_;
};

/// hide_unseen of a tile of scores that stands transposed: keys `first_key` and 15 more by queries `first_query` and
/// on.
template <int N, class Numbers>
__device__ __forceinline__ void hide_unseen_keys(const AttentionSizes& s, float (&scores)[N][4], const Numbers& numbers,
                                                 int origin, int first_key, int first_query) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = result_column(n) + i, query = first_query + column;
      const int lowest = s.first_key_in(numbers.first_rows[column] - origin, query);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = first_key + result_row(half);
        if (!((key <= query) & (key >= lowest))) scores[n][2 * half + i] = -INFINITY;
      }
    }
}

/// Own rows of k and v, and two tiles each of q, dout and what comes with them: one in use, one on its way.
template <int D>
constexpr std::size_t keys_shared =
    static_cast<std::size_t>(2 * BackwardTiles<D>::rows + 4 * BackwardTiles<D>::queries) * tile_stride<D> * 2 +
    2 * sizeof(QueryNumbers<BackwardTiles<D>::queries>);

/// dk, dv or both of a block of keys. Scores stand transposed, [keys, queries]: so they are the left operands of both
/// sums.
template <class T, int D, bool Dk, bool Dv>
__global__ void __launch_bounds__(BackwardTiles<D>::threads, BackwardTiles<D>::keys_blocks)
    backward_keys(AttentionSizes s, Arguments<T> b) {
  using Tiles = BackwardTiles<D>;
  constexpr int rows = Tiles::rows, queries = Tiles::queries, threads = Tiles::threads;
  const AttentionBlock block(blockIdx.x, s.kv_heads, (s.length + rows - 1) / rows);
  const int first_key = block.index * rows;  // the longest columns first
  const int origin = block.sequence * s.length, kv = block.head * s.columns();
  T* const k_tile = reinterpret_cast<T*>(shared_memory());
  T* const v_tile = k_tile + rows * tile_stride<D>;
  T* const q_tiles = v_tile + rows * tile_stride<D>;
  T* const dout_tiles = q_tiles + 2 * queries * tile_stride<D>;
  auto* const numbers = reinterpret_cast<QueryNumbers<queries>*>(dout_tiles + 2 * queries * tile_stride<D>);

  const int last_key = (first_key + rows < s.length ? first_key + rows : s.length) - 1;
  const int first_tile = first_key / queries;
  const int end_tile = end_of_queries(s, origin, first_tile, (s.length + queries - 1) / queries, queries, last_key);
  const int steps = (end_tile - first_tile) * s.group();  // tiles of the first head, then of the next
  QueryCopies<T, D> copies(b, s, origin, block.head * s.group(), first_tile, end_tile);
  const auto copy_queries = [&](int buffer) {
    const int at = buffer * queries * tile_stride<D>;
    copies.next(b, s, q_tiles + at, dout_tiles + at, numbers[buffer]);
  };

  TileCopies<D, rows, threads, T>(b.k.row(origin) + kv, b.k.stride, first_key, s.columns())
      .next(k_tile, s.length - first_key);
  if (Dk)
    TileCopies<D, rows, threads, T>(b.v.row(origin) + kv, b.v.stride, first_key, s.columns())
        .next(v_tile, s.length - first_key);
  copy_queries(0);
  if (s.first == nullptr && threadIdx.x < 2 * queries)
    numbers[threadIdx.x / queries].first_rows[threadIdx.x % queries] = origin;
  const int warp_row = static_cast<int>(threadIdx.x / warp) * 16;
  float dk[1][D / 8][4] = {}, dv[1][D / 8][4] = {};
  for (int step = 0, tile = first_tile; step < steps; ++step) {
    if (step + 1 < steps) {
      copy_queries((step + 1) % 2);
      wait_for_copies<1>();
    } else {
      wait_for_copies<0>();
    }
    __syncthreads();
    const T* const q_tile = q_tiles + step % 2 * queries * tile_stride<D>;
    const T* const dout_tile = dout_tiles + step % 2 * queries * tile_stride<D>;
    const QueryNumbers<queries>& number = numbers[step % 2];
    float scores[1][queries / 8][4] = {}, products[1][queries / 8][4] = {};
    multiply_by_transposed<D>(scores, k_tile + warp_row * tile_stride<D>, q_tile);
    if (Dk) multiply_by_transposed<D>(products, v_tile + warp_row * tile_stride<D>, dout_tile);
    // Queries beyond the sequence have rows of zeros, which add nothing.
    const int first_query = tile * queries, own_key = first_key + warp_row;
    const int last = (first_query + queries < s.length ? queries : s.length - first_query) - 1;
    if (first_query < own_key + 15 || s.first_key_in(number.first_rows[last] - origin, first_query + last) > own_key)
      hide_unseen_keys(s, scores[0], number, origin, own_key, first_query);
#pragma unroll
    for (int n = 0; n < queries / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = result_column(n) + i % 2;
        differentiate(s.scale_log2, number.lse[column] * log2_e, number.products[column], scores[0][n][i],
                      products[0][n][i]);
      }
    if (Dv) multiply_rounded<D>(dv, scores, dout_tile);
    if (Dk) multiply_rounded<D>(dk, products, q_tile);
    if (++tile == end_tile) tile = first_tile;
    __syncthreads();  // the tile is free for the copy after the next
  }
  const int own_row = first_key + warp_row;
  if (Dk) store_rows<D>(dk, b.dk.row(origin) + kv, b.dk.stride, own_row, s.length, s.columns(), s.scale);
  if (Dv) store_rows<D>(dv, b.dv.row(origin) + kv, b.dv.stride, own_row, s.length, s.columns(), 1.0f);
}

/// Own rows of q and dout, and two tiles each of k and v. Then the first key that each query sees.
template <int D>
constexpr std::size_t queries_shared =
    static_cast<std::size_t>(2 * BackwardTiles<D>::rows + 4 * BackwardTiles<D>::keys) * tile_stride<D> * 2 +
    BackwardTiles<D>::rows * sizeof(std::int32_t);

/// dq of a block of queries.
template <class T, int D>
__global__ void __launch_bounds__(BackwardTiles<D>::threads, BackwardTiles<D>::queries_blocks)
    backward_queries(AttentionSizes s, Arguments<T> b) {
  using Tiles = BackwardTiles<D>;
  constexpr int rows = Tiles::rows, keys = Tiles::keys, threads = Tiles::threads;
  const int blocks = (s.length + rows - 1) / rows;
  const AttentionBlock block(blockIdx.x, s.heads, blocks);
  const int first_query = (blocks - 1 - block.index) * rows;  // the longest rows first
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
  const int own_query = opaque(first_query + warp_row + result_row(0));  // of half 0
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
    __syncthreads();  // the tile is free for the copy after the next
  }
  store_rows<D>(dq, b.dq.row(origin) + own, b.dq.stride, first_query + warp_row, s.length, s.columns(), s.scale);
}

template <class T, int D>
void on_tensor_cores(Lane lane, const AttentionSizes& s, const AttentionBackward<T>& b) {
  using Tiles = BackwardTiles<D>;
  const Arguments<T> arguments(b);
  const std::int64_t blocks = s.sequences * ceil_divide(s.length, Tiles::rows);
  const auto keys_pass = [&](auto kernel) {
    launch(lane, "attention_backward", kernel, grid_of_blocks(blocks * s.kv_heads, Tiles::threads), keys_shared<D>, s,
           arguments);
  };
  if constexpr (Tiles::apart) {
    keys_pass(backward_keys<T, D, true, false>);
    keys_pass(backward_keys<T, D, false, true>);
  } else {
    keys_pass(backward_keys<T, D, true, true>);
  }
  launch(lane, "attention_backward", backward_queries<T, D>, grid_of_blocks(blocks * s.heads, Tiles::threads),
         queries_shared<D>, s, arguments);
}

}  // namespace

template <class T>
void attention_backward(Lane lane, const AttentionShape& shape, const AttentionBackward<T>& b) {
  if (shape.tokens() == 0) return;
  const AttentionSizes s(shape, b.first);
  attention_products(lane, s, b);
  if constexpr (sizeof(T) == 2)
    if (!lane.plain && fits_tiles(s.head_dim) && rows_are_wide(b.q, b.k, b.v, b.dout, b.dq, b.dk, b.dv))
      return with_tile_columns(s.head_dim,
                               [&](auto columns) { on_tensor_cores<T, decltype(columns)::value>(lane, s, b); });
  attention_backward_plain(lane, s, b);
}

template void attention_backward<float>(Lane, const AttentionShape&, const AttentionBackward<float>&);
template void attention_backward<bf16>(Lane, const AttentionShape&, const AttentionBackward<bf16>&);
template void attention_backward<f16>(Lane, const AttentionShape&, const AttentionBackward<f16>&);

}  // namespace fsdp::device::cuda

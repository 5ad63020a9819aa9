// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention's backward over blocks of keys. A thread block owns dk and dv of its keys and loops over tiles of all
/// queries that attend to them.
#include "attention_backward.cuh"

namespace fsdp::device::cuda {
namespace {

/// Returns the first tile, from `begin` on, whose queries attend neither to `key` nor to an earlier key. Uses a binary
/// search, since documents and windows end in order.
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

/// Per-query values of a tile of queries that a block of keys needs, in addition to the rows of q and dout.
template <int N>
struct QueryNumbers {
  float lse[N], products[N];
  std::int32_t first_rows[N];  ///< first rows of their documents
};

/// Copies the tiles of queries that a block of keys needs: all tiles of the first head, then those of the next head.
template <class T, int D>
class QueryCopies {
  using Tiles = BackwardTiles<D>;

 public:
  using Numbers = QueryNumbers<Tiles::queries>;

  /// Copies tiles [first_tile, end_tile) of head `head` and of the following heads.
  __device__ __forceinline__ QueryCopies(const BackwardArguments<T>& b, const AttentionSizes& s, int origin, int head,
                                         int first_tile, int end_tile)
      : q_(b.q.row(origin) + head * s.columns(), b.q.stride, first_tile * Tiles::queries, s.columns()),
        dout_(b.dout.row(origin) + head * s.columns(), b.dout.stride, first_tile * Tiles::queries, s.columns()),
        origin_(origin),
        head_(head),
        first_tile_(first_tile),
        end_tile_(end_tile),
        tile_(first_tile) {}

  /// Starts the copies of the next tile, as one group.
  __device__ __forceinline__ void next(const BackwardArguments<T>& b, const AttentionSizes& s, T* q_tile, T* dout_tile,
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

/// The transposed counterpart of hide_unseen: masks a tile of scores of 16 keys, starting with `first_key`, by queries
/// starting with `first_query`.
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

/// Bytes of shared memory: own rows of k and v, and two tiles each of q, dout and their QueryNumbers: one in use, one
/// loading.
template <int D>
constexpr std::size_t keys_shared =
    static_cast<std::size_t>(2 * BackwardTiles<D>::rows + 4 * BackwardTiles<D>::queries) * tile_stride<D> * 2 +
    2 * sizeof(QueryNumbers<BackwardTiles<D>::queries>);

/// Computes dk, dv or both of a block of keys. Scores are transposed, [keys, queries], so that they are the left
/// operands of both matmuls.
template <class T, int D, bool Dk, bool Dv>
__global__ void __launch_bounds__(BackwardTiles<D>::threads, BackwardTiles<D>::keys_blocks)
    backward_keys(AttentionSizes s, BackwardArguments<T> b) {
  using Tiles = BackwardTiles<D>;
  constexpr int rows = Tiles::rows, queries = Tiles::queries, threads = Tiles::threads;
  const AttentionBlock block(blockIdx.x, s.kv_heads, (s.length + rows - 1) / rows);
  const int first_key = block.index * rows;  // longest columns first
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
    // Queries beyond the end of the sequence have rows of zeros, which do not change the sums.
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
    __syncthreads();  // the tile may now be overwritten by the copy after the next
  }
  const int own_row = first_key + warp_row;
  if (Dk) store_rows<D>(dk, b.dk.row(origin) + kv, b.dk.stride, own_row, s.length, s.columns(), s.scale);
  if (Dv) store_rows<D>(dv, b.dv.row(origin) + kv, b.dv.stride, own_row, s.length, s.columns(), 1.0f);
}

}  // namespace

template <class T>
void attention_backward_keys(Lane lane, const AttentionSizes& s, const BackwardArguments<T>& b) {
  with_tile_columns(s.head_dim, [&](auto columns) {
    constexpr int D = decltype(columns)::value;
    using Tiles = BackwardTiles<D>;
    const std::int64_t blocks = s.sequences * s.kv_heads * ceil_divide(s.length, Tiles::rows);
    const auto pass = [&](auto kernel) {
      launch(lane, "attention_backward", kernel, grid_of_blocks(blocks, Tiles::threads), keys_shared<D>, s, b);
    };
    if constexpr (Tiles::apart) {
      pass(backward_keys<T, D, true, false>);
      pass(backward_keys<T, D, false, true>);
    } else {
      pass(backward_keys<T, D, true, true>);
    }
  });
}

template void attention_backward_keys(Lane, const AttentionSizes&, const BackwardArguments<bf16>&);
template void attention_backward_keys(Lane, const AttentionSizes&, const BackwardArguments<f16>&);

}  // namespace fsdp::device::cuda

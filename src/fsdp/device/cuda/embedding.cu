// SPDX-License-Identifier: Apache-2.0
/// @file
/// Embedding lookup, and its gradient without atomics: each row of the table has one owning thread block.
#include <algorithm>
#include <limits>

#include "kernel.cuh"

namespace fsdp::device::cuda {
namespace {

template <class T, class TableT>
struct Gather {
  Rows<const TableT> table;
  std::int64_t vocabulary;
  const std::int32_t* tokens;
  Rows<T> out;
  template <int W>
  __device__ __forceinline__ void operator()(std::int64_t row, std::int64_t column) const {
    const std::int32_t token = tokens[row];
    float a[W];
    if (token >= 0 && token < vocabulary) {
      load(table.row(token) + column, a);
    } else {
#pragma unroll
      for (int i = 0; i < W; ++i) a[i] = std::numeric_limits<float>::quiet_NaN();
    }
    store(out.row(row) + column, a);
  }
};

template <class T>
struct Scatter {
  const std::int32_t* tokens;
  std::int64_t count;
  Rows<const T> dy;
  Rows<float> dtable;
  std::int64_t vocabulary, columns;
  bool overwrite;
};

/// A thread block owns the rows given by owner_of_row (along x) and `blockDim.x` vectors of columns (along y). It
/// processes 256 tokens at a time: it lists, in order, the tokens whose rows it owns, and adds their rows of dy.
template <class T, int W>
__global__ void scatter(Cut cut, Scatter<T> s) {
  __shared__ std::int32_t mine[element_threads];
  __shared__ std::uint32_t votes[element_threads / warp];
  const std::int64_t thread = std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  const std::int64_t threads = std::int64_t{gridDim.y} * blockDim.x;
  if (s.overwrite)
    for (std::int64_t row = blockIdx.x; row < s.vocabulary; row += row_owners)
      for_row<W>(cut, thread, threads, [&]<int V>(std::int64_t column) {
        const float zeros[V] = {};
        store(s.dtable.row(row) + column, zeros);
      });
  for (std::int64_t begin = 0; begin < s.count; begin += blockDim.x) {
    const std::int64_t t = begin + threadIdx.x;
    const std::int32_t token = t < s.count ? s.tokens[t] : -1;
    const bool is_mine = token >= 0 && token < s.vocabulary && owner_of_row(token) == blockIdx.x;
    const std::uint32_t vote = ballot(is_mine);
    if (threadIdx.x % warp == 0) votes[threadIdx.x / warp] = vote;
    __syncthreads();
    unsigned before = 0, listed = 0;
    for (unsigned i = 0; i < blockDim.x / warp; ++i) {
      if (i < threadIdx.x / warp) before += popcount(votes[i]);
      listed += popcount(votes[i]);
    }
    if (is_mine)
      mine[before + popcount(vote & ((1u << threadIdx.x % warp) - 1))] = static_cast<std::int32_t>(t - begin);
    __syncthreads();
    for (unsigned i = 0; i < listed; ++i) {
      const std::int64_t row = begin + mine[i];
      for_row<W>(cut, thread, threads, [&]<int V>(std::int64_t column) {
        float sum[V], dy[V];
        load(s.dtable.row(s.tokens[row]) + column, sum);
        load(s.dy.row(row) + column, dy);
#pragma unroll
        for (int j = 0; j < V; ++j) sum[j] += dy[j];
        store(s.dtable.row(s.tokens[row]) + column, sum);
      });
    }
  }
}

/// One thread per column adds all tokens' gradients in order.
template <class T>
__global__ void scatter_plain(Scatter<T> s) {
  for (std::int64_t column = thread_of_grid(); column < s.columns; column += threads_of_grid()) {
    for (std::int64_t row = 0; s.overwrite && row < s.vocabulary; ++row) s.dtable.row(row)[column] = 0;
    for (std::int64_t t = 0; t < s.count; ++t)
      if (s.tokens[t] >= 0 && s.tokens[t] < s.vocabulary)
        s.dtable.row(s.tokens[t])[column] += widen(s.dy.row(t)[column]);
  }
}

}  // namespace

template <class T, class W>
void compute(Lane lane, const Embedding<T, W>& op) {
  const auto& [table, tokens, out] = op;
  const Access accesses[] = {access(table), access(out)};
  run<16 / sizeof(T)>(lane, "embedding", Gather<T, W>{table, table.rows(), tokens.data(), out}, out.rows(),
                      out.columns(), accesses);
}

template <class T>
void compute(Lane lane, const EmbeddingBackward<T>& op) {
  const auto& [tokens, dy, dtable, write] = op;
  if (dtable.numel() == 0) return;
  constexpr int width = 16 / sizeof(T);
  const Scatter<T> s{.tokens = tokens.data(),
                     .count = tokens.numel(),
                     .dy = dy,
                     .dtable = dtable,
                     .vocabulary = dtable.rows(),
                     .columns = dtable.columns(),
                     .overwrite = write == Write::overwrite};
  if (lane.plain) {
    launch(lane, "embedding_backward", scatter_plain<T>, grid_of_elements(1, dtable.columns()), 0, s);
    return;
  }
  const Cut cut = cut_for_vectors(dtable.columns(), width, {access(dy), access(dtable)});
  Grid grid = grid_of_elements(std::min(dtable.rows(), row_owners), cut.items());
  std::swap(grid.x, grid.y);
  launch(lane, "embedding_backward", cut.vectors > 0 ? scatter<T, width> : scatter<T, 1>, grid, 0, cut, s);
}

FSDP_FOR_WEIGHTS(compute, Lane, Embedding)
FSDP_FOR_TYPES(compute, Lane, EmbeddingBackward)

}  // namespace fsdp::device::cuda

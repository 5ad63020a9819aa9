// SPDX-License-Identifier: Apache-2.0
/// @file
/// Backward of RMS norm, with a fixed number of partial sums for the gradient of the weights. As in forward, threads
/// keep a row in registers, together with the sums of their columns over all of their rows; other rows are read twice.
#include "arithmetic.cuh"
#include "norm.cuh"
#include "scratch.hpp"

namespace fsdp::device::cuda {
namespace {

template <class T, class W>
struct Backward {
  Rows<const T> x;
  const W* w;
  const float* rstd;
  Rows<const T> dy;
  Rows<T> dx;
  bool accumulate;
  float* parts;    ///< partial sums, [blocks, columns], or nullptr
  bool in_shared;  ///< for rows that are read twice: whether a partial sum is accumulated in shared memory
};

/// Maximum number of vectors of a row that a thread keeps; for more vectors and their sums, it does not have enough
/// registers.
constexpr int kept_vectors = 2;

/// The part of a row that a thread keeps in registers.
template <class T>
struct Kept {
  Wide x[kept_vectors], dy[kept_vectors];
  float scale;

  __device__ __forceinline__ void load(const Teams& teams, const Member& member, const auto& b, std::int64_t row,
                                       const HeadRow& at) {
    scale = b.rstd[row];
    const T* const x_row = at.of(b.x);
    const T* const dy_row = at.of(b.dy);
    member.for_vectors<kept_vectors, 16 / sizeof(T)>(teams, [&](int i, int column) {
      x[i] = load_wide(x_row + column);
      dy[i] = load_wide(dy_row + column);
    });
  }
};

/// Adds the sums of the block's teams, one after the other, and writes the block's partial sum. Lanes of a warp that
/// share columns are added first.
template <int W>
__device__ __forceinline__ void write_part(const Teams& teams, const Member& member, float (&sums)[kept_vectors][W],
                                           float* part) {
  for (int mask = teams.threads; mask < static_cast<int>(warp); mask *= 2)
#pragma unroll
    for (int i = 0; i < kept_vectors; ++i)
#pragma unroll
      for (int j = 0; j < W; ++j) sums[i][j] += exchange(sums[i][j], mask);
  auto* const before = reinterpret_cast<float*>(shared_memory());  // [columns]
  const int group = teams.threads < static_cast<int>(warp) ? static_cast<int>(warp) : teams.threads;
  const int thread = static_cast<int>(threadIdx.x), groups = static_cast<int>(blockDim.x) / group;
  for (int turn = 0; turn < groups; ++turn) {
    if (thread / group == turn && thread % group < teams.threads)
      member.for_vectors<kept_vectors, W>(teams, [&](int i, int column) {
        if (turn > 0)
#pragma unroll
          for (int j = 0; j < W; ++j) sums[i][j] += before[column + j];
        if (turn + 1 == groups)
          store(part + column, sums[i]);
        else
#pragma unroll
          for (int j = 0; j < W; ++j) before[column + j] = sums[i][j];
      });
    if (turn + 1 < groups) __syncthreads();
  }
}

/// Each block computes one partial sum. There are as many as two small blocks per multiprocessor of a large GPU. With
/// so few rows in flight at once, a team requests its next row before it finishes the current one.
template <class T, class W, int Threads>
__global__ void __launch_bounds__(Threads, 512 / Threads)
    norm_kept_rows_backward(Teams teams, NormSizes sizes, Backward<T, W> b) {
  constexpr int width = 16 / sizeof(T);
  const Member member(teams);
  TeamSums sums(teams, member);
  float dw[kept_vectors][width] = {};
  const std::int64_t step = std::int64_t{gridDim.x} * teams.count, first = std::int64_t{blockIdx.x} * teams.count;
  std::int64_t row = first + member.team;
  HeadRow at(sizes, row);
  Kept<T> kept, next;
  if (row < sizes.rows) kept.load(teams, member, b, row, at);
  for (std::int64_t begin = first; begin < sizes.rows; begin += step, row += step) {  // equally often in every thread
    T* const dx_row = at.of(b.dx);
    const bool exists = row < sizes.rows;
    float products = 0;
    if (exists)
      member.for_vectors<kept_vectors, width>(teams, [&](int i, int column) {
        float x[width], w[width], dy[width];
        load(b.w + column, w);  // reloaded from the L1 cache each time: a thread has too few registers to keep it
        unpack<T>(kept.x[i], x);
        unpack<T>(kept.dy[i], dy);
#pragma unroll
        for (int j = 0; j < width; ++j) products += dy[j] * w[j] * x[j];
      });
    at.advance(sizes, step);
    if (row + step < sizes.rows) next.load(teams, member, b, row + step, at);
    const float total = sums.of(products);
    if (exists) {
      const float scale = kept.scale, projection = total * scale / static_cast<float>(sizes.cut.columns);
      member.for_vectors<kept_vectors, width>(teams, [&](int i, int column) {
        float x[width], w[width], dy[width], dx[width];
        load(b.w + column, w);
        unpack<T>(kept.x[i], x);
        unpack<T>(kept.dy[i], dy);
        if (b.accumulate) load(dx_row + column, dx);
#pragma unroll
        for (int j = 0; j < width; ++j) {
          const float gradient = rms_norm_dx(x[j], w[j], dy[j], scale, projection);
          dx[j] = b.accumulate ? dx[j] + gradient : gradient;
          dw[i][j] += dy[j] * x[j] * scale;
        }
        store(dx_row + column, dx);
      });
    }
    kept = next;
  }
  if (b.parts != nullptr) write_part(teams, member, dw, b.parts + blockIdx.x * sizes.cut.columns);
}

/// Returns the slot in shared memory of element i of the vector at `column`. Slots are ordered by i, then by thread, so
/// that the threads of a warp do not have bank conflicts.
template <int V>
__device__ __forceinline__ std::int64_t slot_of(const Cut& cut, std::int64_t column, int i) {
  if (V > 1) return i * cut.vectors + (column - cut.head) / V;
  return column < cut.head ? cut.vectors * cut.width + column : column;
}

template <class T, class W, int Width>
__global__ void __launch_bounds__(most_threads) norm_rows_backward(NormSizes sizes, Backward<T, W> b) {
  const Cut& cut = sizes.cut;
  float* const part = b.parts == nullptr ? nullptr : b.parts + blockIdx.x * cut.columns;
  float* const dw = b.in_shared ? reinterpret_cast<float*>(shared_memory()) : part;
  // A thread has the same columns in every row, so no other thread reads its sums before they are complete.
  const auto for_own = [&](const auto& body) { for_row<Width>(cut, threadIdx.x, blockDim.x, body); };
  const auto place = [&]<int V>(std::int64_t column, int i) {
    return b.in_shared ? slot_of<V>(cut, column, i) : column + i;
  };
  if (part != nullptr)
    for_own([&]<int V>(std::int64_t column) {
      for (int i = 0; i < V; ++i) dw[place.template operator()<V>(column, i)] = 0;
    });
  for_rows_of_block(sizes.rows, [&](std::int64_t row) {
    const HeadRow at(sizes, row);
    const T* const x_row = at.of(b.x);
    const T* const dy_row = at.of(b.dy);
    T* const dx_row = at.of(b.dx);
    const float scale = b.rstd[row];
    float products = 0;
    for_own([&]<int V>(std::int64_t column) {
      float x[V], w[V], dy[V];
      load(x_row + column, x);
      load(b.w + column, w);
      load(dy_row + column, dy);
#pragma unroll
      for (int i = 0; i < V; ++i) products += dy[i] * w[i] * x[i];
    });
    const float projection = block_sum(products) * scale / static_cast<float>(cut.columns);
    for_own([&]<int V>(std::int64_t column) {
      float x[V], w[V], dy[V], dx[V];
      load(x_row + column, x);
      load(b.w + column, w);
      load(dy_row + column, dy);
      if (b.accumulate) load(dx_row + column, dx);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float gradient = rms_norm_dx(x[i], w[i], dy[i], scale, projection);
        dx[i] = b.accumulate ? dx[i] + gradient : gradient;
        if (part != nullptr) dw[place.template operator()<V>(column, i)] += dy[i] * x[i] * scale;
      }
      store(dx_row + column, dx);
    });
  });
  if (part != nullptr && b.in_shared)
    for_own([&]<int V>(std::int64_t column) {
      for (int i = 0; i < V; ++i) part[column + i] = dw[slot_of<V>(cut, column, i)];
    });
}

constexpr int fold_groups = 8;

/// Each warp of a block adds every eighth partial sum of 32 columns, in order; the first warp then adds the warps'
/// sums, in order.
__global__ void __launch_bounds__(fold_groups* warp)
    fold_parts(std::int64_t columns, const float* parts, std::int64_t count, bool accumulate, float* dw) {
  __shared__ double sums[fold_groups][warp];
  const unsigned group = threadIdx.x / warp, own = threadIdx.x % warp;
  for (std::int64_t first = std::int64_t{blockIdx.x} * warp; first < columns; first += std::int64_t{gridDim.x} * warp) {
    const std::int64_t column = first + own;
    double sum = 0;
    if (column < columns)
      for (std::int64_t part = group; part < count; part += fold_groups)
        sum += static_cast<double>(parts[part * columns + column]);
    __syncthreads();  // the first warp may still be reading the sums of earlier columns
    sums[group][own] = sum;
    __syncthreads();
    if (group > 0 || column >= columns) continue;
    double total = accumulate ? static_cast<double>(dw[column]) : 0;
    for (int i = 0; i < fold_groups; ++i) total += sums[i][own];
    dw[column] = static_cast<float>(total);
  }
}

template <class T, class W>
__global__ void norm_dx_plain(NormSizes sizes, Backward<T, W> b) {
  const std::int64_t columns = sizes.cut.columns;
  for (std::int64_t row = thread_of_grid(); row < sizes.rows; row += threads_of_grid()) {
    const HeadRow at(sizes, row);
    const T* const x = at.of(b.x);
    const T* const dy = at.of(b.dy);
    float products = 0;
    for (std::int64_t c = 0; c < columns; ++c) products += widen(dy[c]) * widen(b.w[c]) * widen(x[c]);
    const float projection = products * b.rstd[row] / static_cast<float>(columns);
    for (std::int64_t c = 0; c < columns; ++c) {
      T& dx = at.of(b.dx)[c];
      const float before = b.accumulate ? widen(dx) : 0.0f;
      dx = narrow<T>(before + rms_norm_dx(widen(x[c]), widen(b.w[c]), widen(dy[c]), b.rstd[row], projection));
    }
  }
}

template <class T, class W>
__global__ void norm_dw_plain(NormSizes sizes, Backward<T, W> b, bool accumulate, float* dw) {
  for (std::int64_t c = thread_of_grid(); c < sizes.cut.columns; c += threads_of_grid()) {
    double sum = 0;
    for (std::int64_t row = 0; row < sizes.rows; ++row) {
      const HeadRow at(sizes, row);
      sum += static_cast<double>(widen(at.of(b.dy)[c]) * widen(at.of(b.x)[c]) * b.rstd[row]);
    }
    dw[c] = static_cast<float>(accumulate ? static_cast<double>(dw[c]) + sum : sum);
  }
}

/// Maximum shared memory with which two blocks still fit on a multiprocessor.
constexpr std::int64_t most_shared = 96 * 1024;

/// Enqueues the kernel that writes dx and the partial sums; returns the number of partial sums.
template <class T, class W>
std::int64_t launch_rows(Lane lane, const NormSizes& sizes, Backward<T, W> b) {
  constexpr int width = 16 / sizeof(T);
  const std::int64_t most = row_parts(sizes.rows), columns = sizes.cut.columns;
  const auto kept = [&](auto kernel, const Teams& teams) {
    const Grid grid = grid_of_teams(teams, sizes.rows, most);
    const bool adds_teams = b.parts != nullptr && teams.count > 1;
    launch(lane, "rms_norm_backward", kernel, grid, adds_teams ? static_cast<std::size_t>(columns) * 4 : 0, teams,
           sizes, b);
    return std::int64_t{grid.x};
  };
  if (const Teams teams = teams_of(sizes.cut, kept_vectors, 256, 256); teams.count > 0)
    return kept(norm_kept_rows_backward<T, W, 256>, teams);
  if (const Teams teams = teams_of(sizes.cut, kept_vectors, 512, 512); teams.count > 0)
    return kept(norm_kept_rows_backward<T, W, 512>, teams);
  b.in_shared = b.parts != nullptr && columns * 4 <= most_shared;
  const Grid grid = grid_of_rows(most, sizes.cut.items());
  launch(lane, "rms_norm_backward",
         sizes.cut.vectors > 0 ? norm_rows_backward<T, W, width> : norm_rows_backward<T, W, 1>, grid,
         b.in_shared ? static_cast<std::size_t>(columns) * 4 : 0, sizes, b);
  return grid.x;
}

}  // namespace

template <class T, class W>
void compute(Lane lane, const RmsNormBackward<T, W>& op, Scratch memory) {
  const auto& [x, w, rstd, dy, dx, dx_write, dw, dw_write] = op;
  constexpr int width = 16 / sizeof(T);
  const bool adds = dw_write == Write::accumulate;
  const std::int64_t columns = w.numel();
  if (columns == 0) return;
  NormSizes sizes{.tokens = x.rows(), .rows = rstd.numel(), .cut = cut_singly(columns)};
  const Backward<T, W> b{.x = x,
                         .w = w.data(),
                         .rstd = rstd.data(),
                         .dy = dy,
                         .dx = dx,
                         .accumulate = dx_write == Write::accumulate,
                         .parts = op.wants_dw() ? reinterpret_cast<float*>(memory.data) : nullptr,
                         .in_shared = false};
  if (lane.plain) {
    if (op.wants_dw())  // before dx is written, since dx may alias dy
      launch(lane, "rms_norm_backward", norm_dw_plain<T, W>, grid_of_elements(1, columns), 0, sizes, b, adds,
             dw.data());
    launch(lane, "rms_norm_backward", norm_dx_plain<T, W>, grid_of_elements(1, sizes.rows), 0, sizes, b);
    return;
  }
  sizes.cut = cut_for_vectors(columns, width, {access(x), access(dy), access(dx), access(w), head_access(x, columns)});
  const std::int64_t count = launch_rows(lane, sizes, b);
  if (b.parts == nullptr) return;
  const Grid grid{.x = static_cast<std::uint32_t>(std::min<std::int64_t>((columns + warp - 1) / warp, most_blocks)),
                  .threads = fold_groups * warp};
  launch(lane, "rms_norm_backward", fold_parts, grid, 0, columns, b.parts, count, adds, dw.data());
}

FSDP_FOR_WEIGHTS(compute, Lane, RmsNormBackward, Scratch)

}  // namespace fsdp::device::cuda

// SPDX-License-Identifier: Apache-2.0
/// @file
/// RMS norm, forward and backward: one thread block per row, or per head of a row, and a fixed number of partial sums
/// for the gradient of the weights.

#include "arithmetic.cuh"
#include "kernel.cuh"
#include "scratch.hpp"

namespace fsdp::device::cuda {
namespace {

struct Sizes {
  std::int64_t rows;  ///< rows of all heads together
  Cut cut;            ///< cut of one head's row
  float eps;
};

/// Rows of the first head, then those of the next.
template <class T>
struct HeadRows {
  Rows<T> matrix;
  std::int64_t rows;
  std::int64_t width;

  HeadRows(Tensor<T> x, std::int64_t columns) : matrix(x), rows(x.rows()), width(columns) {}
  __device__ __forceinline__ T* row(std::int64_t index) const {
    return index < rows ? matrix.row(index) : matrix.row(index % rows) + index / rows * width;
  }
};

/// Returns where heads begin, for cut_for_vectors; with one head, the same as the rows.
template <class T>
Access head_access(Tensor<T> x, std::int64_t width) {
  return {.data = x.data(), .element_bytes = sizeof(T), .row_stride = x.columns() == width ? 0 : width};
}

template <class T, int W>
__global__ void norm_rows(Sizes sizes, HeadRows<const T> x, const T* w, HeadRows<T> y, float* rstd) {
  for_rows_of_block(sizes.rows, [&](std::int64_t row) {
    float squares = 0;
    for_row<W>(sizes.cut, threadIdx.x, blockDim.x, [&]<int V>(std::int64_t column) {
      float a[V];
      load(x.row(row) + column, a);
#pragma unroll
      for (int i = 0; i < V; ++i) squares += a[i] * a[i];
    });
    const float scale = rms_scale(block_sum(squares), static_cast<float>(sizes.cut.columns), sizes.eps);
    if (threadIdx.x == 0) rstd[row] = scale;
    for_row<W>(sizes.cut, threadIdx.x, blockDim.x, [&]<int V>(std::int64_t column) {
      float a[V], b[V];
      load(x.row(row) + column, a);
      load(w + column, b);
#pragma unroll
      for (int i = 0; i < V; ++i) a[i] = a[i] * scale * b[i];
      store(y.row(row) + column, a);
    });
  });
}

template <class T>
__global__ void norm_rows_plain(Sizes sizes, HeadRows<const T> x, const T* w, HeadRows<T> y, float* rstd) {
  for (std::int64_t row = thread_of_grid(); row < sizes.rows; row += threads_of_grid()) {
    float squares = 0;
    for (std::int64_t c = 0; c < sizes.cut.columns; ++c) squares += widen(x.row(row)[c]) * widen(x.row(row)[c]);
    rstd[row] = rms_scale(squares, static_cast<float>(sizes.cut.columns), sizes.eps);
    for (std::int64_t c = 0; c < sizes.cut.columns; ++c)
      y.row(row)[c] = narrow<T>(widen(x.row(row)[c]) * rstd[row] * widen(w[c]));
  }
}

/// Returns the slot in a part of element i of the vector at `column`. Slots are ordered by i, then by thread, so that
/// the threads of a warp have no bank conflicts in shared memory.
template <int V>
__device__ __forceinline__ std::int64_t slot_of(const Cut& cut, std::int64_t column, int i) {
  if (V > 1) return i * cut.vectors + (column - cut.head) / V;
  return column < cut.head ? cut.vectors * cut.width + column : column;
}
__device__ __forceinline__ std::int64_t column_of(const Cut& cut, std::int64_t slot) {
  const std::int64_t in_vectors = cut.vectors * cut.width;
  if (slot < in_vectors) return cut.head + slot % cut.vectors * cut.width + slot / cut.vectors;
  return slot - in_vectors < cut.head ? slot - in_vectors : slot;
}

template <class T>
struct Backward {
  HeadRows<const T> x;
  const T* w;
  const float* rstd;
  HeadRows<const T> dy;
  HeadRows<T> dx;
  bool accumulate;
  float* parts;    ///< [blocks, columns] in the order of slot_of, or nullptr
  bool in_shared;  ///< whether a part is summed in shared memory
};

template <class T, int W>
__global__ void __launch_bounds__(most_threads) norm_rows_backward(Sizes sizes, Backward<T> b) {
  const Cut& cut = sizes.cut;
  float* const part = b.parts == nullptr ? nullptr : b.parts + blockIdx.x * cut.columns;
  float* const dw = b.in_shared ? reinterpret_cast<float*>(shared_memory()) : part;
  // A thread has the same columns in every row, so no other thread reads its sums before they are complete.
  const auto for_own = [&](const auto& body) { for_row<W>(cut, threadIdx.x, blockDim.x, body); };
  if (part != nullptr)
    for_own([&]<int V>(std::int64_t column) {
      for (int i = 0; i < V; ++i) dw[slot_of<V>(cut, column, i)] = 0;
    });
  for_rows_of_block(sizes.rows, [&](std::int64_t row) {
    const float scale = b.rstd[row];
    float products = 0;
    for_own([&]<int V>(std::int64_t column) {
      float x[V], w[V], dy[V];
      load(b.x.row(row) + column, x);
      load(b.w + column, w);
      load(b.dy.row(row) + column, dy);
#pragma unroll
      for (int i = 0; i < V; ++i) products += dy[i] * w[i] * x[i];
    });
    const float projection = block_sum(products) * scale / static_cast<float>(cut.columns);
    for_own([&]<int V>(std::int64_t column) {
      float x[V], w[V], dy[V], dx[V];
      load(b.x.row(row) + column, x);
      load(b.w + column, w);
      load(b.dy.row(row) + column, dy);
      if (b.accumulate) load(b.dx.row(row) + column, dx);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float gradient = rms_norm_dx(x[i], w[i], dy[i], scale, projection);
        dx[i] = b.accumulate ? dx[i] + gradient : gradient;
        if (part != nullptr) dw[slot_of<V>(cut, column, i)] += dy[i] * x[i] * scale;
      }
      store(b.dx.row(row) + column, dx);
    });
  });
  if (part != nullptr && b.in_shared)
    for_own([&]<int V>(std::int64_t column) {
      for (int i = 0; i < V; ++i) part[slot_of<V>(cut, column, i)] = dw[slot_of<V>(cut, column, i)];
    });
}

/// One thread per column adds the parts in order.
__global__ void fold_parts(Cut cut, const float* parts, std::int64_t count, bool accumulate, float* dw) {
  for (std::int64_t slot = thread_of_grid(); slot < cut.columns; slot += threads_of_grid()) {
    double sum = 0;
    for (std::int64_t part = 0; part < count; ++part) sum += static_cast<double>(parts[part * cut.columns + slot]);
    float& to = dw[column_of(cut, slot)];
    to = static_cast<float>(accumulate ? static_cast<double>(to) + sum : sum);
  }
}

template <class T>
__global__ void norm_dx_plain(Sizes sizes, Backward<T> b) {
  const std::int64_t columns = sizes.cut.columns;
  for (std::int64_t row = thread_of_grid(); row < sizes.rows; row += threads_of_grid()) {
    float products = 0;
    for (std::int64_t c = 0; c < columns; ++c)
      products += widen(b.dy.row(row)[c]) * widen(b.w[c]) * widen(b.x.row(row)[c]);
    const float projection = products * b.rstd[row] / static_cast<float>(columns);
    for (std::int64_t c = 0; c < columns; ++c) {
      T& dx = b.dx.row(row)[c];
      const float before = b.accumulate ? widen(dx) : 0.0f;
      dx = narrow<T>(before + rms_norm_dx(widen(b.x.row(row)[c]), widen(b.w[c]), widen(b.dy.row(row)[c]), b.rstd[row],
                                          projection));
    }
  }
}

template <class T>
__global__ void norm_dw_plain(Sizes sizes, Backward<T> b, bool accumulate, float* dw) {
  for (std::int64_t c = thread_of_grid(); c < sizes.cut.columns; c += threads_of_grid()) {
    double sum = 0;
    for (std::int64_t row = 0; row < sizes.rows; ++row)
      sum += static_cast<double>(widen(b.dy.row(row)[c]) * widen(b.x.row(row)[c]) * b.rstd[row]);
    dw[c] = static_cast<float>(accumulate ? static_cast<double>(dw[c]) + sum : sum);
  }
}

/// Most shared memory with which two blocks still fit on a multiprocessor.
constexpr std::int64_t most_shared = 96 * 1024;

}  // namespace

template <class T>
void compute(Lane lane, const RmsNorm<T>& op) {
  const auto& [x, w, eps, y, rstd] = op;
  if (x.numel() == 0) return;
  constexpr int width = 16 / sizeof(T);
  const std::int64_t columns = w.numel();
  Sizes sizes{.rows = rstd.numel(), .cut = cut_singly(columns), .eps = eps};
  const HeadRows<const T> from(x, columns);
  const HeadRows<T> to(y, columns);
  if (lane.plain) {
    launch(lane, "rms_norm", norm_rows_plain<T>, grid_of_elements(1, sizes.rows), 0, sizes, from, w.data(), to,
           rstd.data());
    return;
  }
  const Access accesses[] = {access(x), access(y), access(w), head_access(x, columns)};
  sizes.cut = cut_for_vectors(columns, width, accesses);
  const Grid grid = grid_of_rows(sizes.rows, sizes.cut.items());
  launch(lane, "rms_norm", sizes.cut.vectors > 0 ? norm_rows<T, width> : norm_rows<T, 1>, grid, 0, sizes, from,
         w.data(), to, rstd.data());
}

template <class T>
void compute(Lane lane, const RmsNormBackward<T>& op, Scratch memory) {
  const auto& [x, w, rstd, dy, dx, dx_write, dw, dw_write] = op;
  constexpr int width = 16 / sizeof(T);
  const bool adds = dw_write == Write::accumulate;
  const std::int64_t columns = w.numel();
  Sizes sizes{.rows = rstd.numel(), .cut = cut_singly(columns), .eps = 0};
  Backward<T> b{.x = {x, columns},
                .w = w.data(),
                .rstd = rstd.data(),
                .dy = {dy, columns},
                .dx = {dx, columns},
                .accumulate = dx_write == Write::accumulate,
                .parts = op.wants_dw() ? reinterpret_cast<float*>(memory.data) : nullptr,
                .in_shared = false};
  if (columns == 0) return;
  if (lane.plain) {
    if (op.wants_dw())  // before dx is written, since it may alias dy
      launch(lane, "rms_norm_backward", norm_dw_plain<T>, grid_of_elements(1, columns), 0, sizes, b, adds, dw.data());
    launch(lane, "rms_norm_backward", norm_dx_plain<T>, grid_of_elements(1, sizes.rows), 0, sizes, b);
    return;
  }
  const Access accesses[] = {access(x), access(dy), access(dx), access(w), head_access(x, columns)};
  sizes.cut = cut_for_vectors(columns, width, accesses);
  b.in_shared = b.parts != nullptr && columns * 4 <= most_shared;
  const Grid grid = grid_of_rows(row_parts(sizes.rows), sizes.cut.items());
  launch(lane, "rms_norm_backward", sizes.cut.vectors > 0 ? norm_rows_backward<T, width> : norm_rows_backward<T, 1>,
         grid, b.in_shared ? static_cast<std::size_t>(columns) * 4 : 0, sizes, b);
  if (b.parts != nullptr)
    launch(lane, "rms_norm_backward", fold_parts, grid_of_elements(1, columns), 0, sizes.cut, b.parts,
           std::int64_t{grid.x}, adds, dw.data());
}

FSDP_FOR_TYPES(compute, Lane, RmsNorm)
FSDP_FOR_TYPES(compute, Lane, RmsNormBackward, Scratch)

}  // namespace fsdp::device::cuda

// SPDX-License-Identifier: Apache-2.0
/// @file
/// RMS norm of rows, or of each head of a row. Threads keep the elements of a row in registers between its sum and its
/// output. Rows that are too long for this, or do not begin at a multiple of 16 bytes, are read twice.
#include "arithmetic.cuh"
#include "norm.cuh"

namespace fsdp::device::cuda {
namespace {

template <class T, class W>
struct Forward {
  Rows<const T> x;
  const W* w;
  float eps;
  Rows<T> y;
  float* rstd;
};

template <class T, class W, int N>
__global__ void __launch_bounds__(most_threads) norm_kept_rows(Teams teams, NormSizes sizes, Forward<T, W> f) {
  constexpr int width = 16 / sizeof(T);
  const Member member(teams);
  TeamSums sums(teams, member);
  for_rows_of_team(teams, member, sizes, [&](std::int64_t row, const HeadRow& at, bool exists) {
    Wide kept[N];
    float squares = 0;
    if (exists) {
      const T* const x = at.of(f.x);
      member.for_vectors<N, width>(teams, [&](int i, int column) { kept[i] = load_wide(x + column); });
      member.for_vectors<N, width>(teams, [&](int i, int) {
        float a[width];
        unpack<T>(kept[i], a);
#pragma unroll
        for (int j = 0; j < width; ++j) squares += a[j] * a[j];
      });
    }
    const float scale = rms_scale(sums.of(squares), static_cast<float>(sizes.cut.columns), f.eps);
    if (!exists) return;
    if (member.lane == 0) f.rstd[row] = scale;
    T* const y = at.of(f.y);
    member.for_vectors<N, width>(teams, [&](int i, int column) {
      float a[width], b[width];
      unpack<T>(kept[i], a);
      load(f.w + column, b);
#pragma unroll
      for (int j = 0; j < width; ++j) a[j] = a[j] * scale * b[j];
      store(y + column, a);
    });
  });
}

/// Uses one block per row.
template <class T, class W, int Width>
__global__ void norm_rows(NormSizes sizes, Forward<T, W> f) {
  for_rows_of_block(sizes.rows, [&](std::int64_t row) {
    const HeadRow at(sizes, row);
    const T* const x = at.of(f.x);
    T* const y = at.of(f.y);
    float squares = 0;
    for_row<Width>(sizes.cut, threadIdx.x, blockDim.x, [&]<int V>(std::int64_t column) {
      float a[V];
      load(x + column, a);
#pragma unroll
      for (int i = 0; i < V; ++i) squares += a[i] * a[i];
    });
    const float scale = rms_scale(block_sum(squares), static_cast<float>(sizes.cut.columns), f.eps);
    if (threadIdx.x == 0) f.rstd[row] = scale;
    for_row<Width>(sizes.cut, threadIdx.x, blockDim.x, [&]<int V>(std::int64_t column) {
      float a[V], b[V];
      load(x + column, a);
      load(f.w + column, b);
#pragma unroll
      for (int i = 0; i < V; ++i) a[i] = a[i] * scale * b[i];
      store(y + column, a);
    });
  });
}

template <class T, class W>
__global__ void norm_rows_plain(NormSizes sizes, Forward<T, W> f) {
  for (std::int64_t row = thread_of_grid(); row < sizes.rows; row += threads_of_grid()) {
    const HeadRow at(sizes, row);
    const T* const x = at.of(f.x);
    float squares = 0;
    for (std::int64_t c = 0; c < sizes.cut.columns; ++c) squares += widen(x[c]) * widen(x[c]);
    f.rstd[row] = rms_scale(squares, static_cast<float>(sizes.cut.columns), f.eps);
    for (std::int64_t c = 0; c < sizes.cut.columns; ++c)
      at.of(f.y)[c] = narrow<T>(widen(x[c]) * f.rstd[row] * widen(f.w[c]));
  }
}

/// Threads per block if rows are kept in registers; small, so that many rows are in flight at once.
constexpr int threads_of_kept = 128;

}  // namespace

template <class T, class W>
void compute(Lane lane, const RmsNorm<T, W>& op) {
  const auto& [x, w, eps, y, rstd] = op;
  if (x.numel() == 0) return;
  constexpr int width = 16 / sizeof(T);
  const std::int64_t columns = w.numel();
  NormSizes sizes{.tokens = x.rows(), .rows = rstd.numel(), .cut = cut_singly(columns)};
  const Forward<T, W> f{.x = x, .w = w.data(), .eps = eps, .y = y, .rstd = rstd.data()};
  if (lane.plain) {
    launch(lane, "rms_norm", norm_rows_plain<T, W>, grid_of_elements(1, sizes.rows), 0, sizes, f);
    return;
  }
  sizes.cut = cut_for_vectors(columns, width, {access(x), access(y), access(w), head_access(x, columns)});
  const Teams two = teams_of(sizes.cut, 2, threads_of_kept, most_threads);
  const Teams four = teams_of(sizes.cut, 4, threads_of_kept, most_threads);
  const bool keeps_four = four.count > 0 && (two.count == 0 || four.are_full(4));
  if (const Teams& teams = keeps_four ? four : two; teams.count > 0)
    launch(lane, "rms_norm", keeps_four ? norm_kept_rows<T, W, 4> : norm_kept_rows<T, W, 2>,
           grid_of_teams(teams, sizes.rows, most_blocks), 0, teams, sizes, f);
  else
    launch(lane, "rms_norm", sizes.cut.vectors > 0 ? norm_rows<T, W, width> : norm_rows<T, W, 1>,
           grid_of_rows(sizes.rows, sizes.cut.items()), 0, sizes, f);
}

FSDP_FOR_WEIGHTS(compute, Lane, RmsNorm)

}  // namespace fsdp::device::cuda

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rotary position embedding, rotate_half layout, and the starts of packed documents.
#include <algorithm>

#include "../compute/rotary_frequency.hpp"
#include "arithmetic.cuh"
#include "kernel.cuh"

namespace fsdp::device::cuda {
namespace {

/// `positions` may be nullptr: row i is then position i.
__global__ void make_table(double theta, RotaryScaling scaling, Rows<float> table, std::int64_t rows, std::int64_t half,
                           const std::int32_t* positions) {
  const std::int64_t count = rows * half;
  for (std::int64_t i = thread_of_grid(); i < count; i += threads_of_grid()) {
    const std::int64_t row = i / half, pair = i % half;
    const std::int64_t position = positions == nullptr ? row : positions[row];
    const double angle = static_cast<double>(position) * rotary_frequency(theta, scaling, pair, 2 * half);
    table.row(row)[pair] = static_cast<float>(scaling.magnitude * cos(angle));
    table.row(row)[half + pair] = static_cast<float>(scaling.magnitude * sin(angle));
  }
}

/// A number of cumulative lengths as a kernel argument, so that the host need not keep a copy or wait for one.
struct Borders {
  static constexpr int most = 449;
  std::int64_t at[most];
};

/// Uses one thread block per document.
__global__ void find_first_rows(Borders borders, std::int32_t* first) {
  const std::int64_t begin = borders.at[blockIdx.x], end = borders.at[blockIdx.x + 1];
  for (std::int64_t t = begin + threadIdx.x; t < end; t += blockDim.x) first[t] = static_cast<std::int32_t>(begin);
}

struct Heads {
  std::int64_t rows, pairs, half, positions;  ///< `pairs`: number of pairs of all heads of a row
  const std::int32_t* first;                  ///< first row of every token's document, or nullptr
  float sign;
};

/// Rotates W neighbouring pairs per thread.
template <class T, int W>
__global__ void rotate_rows(Heads heads, Rows<T> x, Rows<const float> table) {
  for (std::int64_t row = blockIdx.y; row < heads.rows; row += gridDim.y) {
    const std::int64_t position = heads.first == nullptr ? row % heads.positions : row - heads.first[row];
    for (std::int64_t item = thread_of_grid(); item * W < heads.pairs; item += threads_of_grid()) {
      const std::int64_t head = item * W / heads.half, pair = item * W % heads.half;
      T* const low_at = x.row(row) + 2 * head * heads.half + pair;
      float low[W], high[W], cosine[W], sine[W];
      load(low_at, low);
      load(low_at + heads.half, high);
      load(table.row(position) + pair, cosine);
      load(table.row(position) + heads.half + pair, sine);
#pragma unroll
      for (int i = 0; i < W; ++i) rotate(low[i], high[i], cosine[i], heads.sign * sine[i]);
      store(low_at, low);
      store(low_at + heads.half, high);
    }
  }
}

}  // namespace

void compute(Lane lane, const RotaryTable& op) {
  if (op.table.numel() == 0) return;
  const std::int64_t half = op.table.columns() / 2;
  launch(lane, "rotary_table", make_table, grid_of_elements(1, op.table.rows() * half), 0,
         static_cast<double>(op.theta), op.scaling, Rows<float>(op.table), op.table.rows(), half, op.positions.data());
}

Tensor<const std::int32_t> first_rows(Lane lane, CumulativeLengths documents, std::int64_t tokens, Scratch memory) {
  if (documents.empty()) return {};
  const auto first = memory.as<std::int32_t>({tokens});
  for (std::size_t begin = 0; begin + 1 < documents.size(); begin += Borders::most - 1) {
    const std::size_t count = std::min<std::size_t>(Borders::most, documents.size() - begin);
    Borders borders{};
    std::copy_n(documents.data() + begin, count, borders.at);
    const Grid grid{.x = static_cast<std::uint32_t>(count - 1), .threads = element_threads};
    launch(lane, "first_rows", find_first_rows, grid, 0, borders, first.data());
  }
  return first;
}

template <class T>
void compute(Lane lane, const Rope<T>& op, Scratch memory) {
  const auto& [x, table, rotation, documents] = op;
  const auto first = first_rows(lane, documents, x.rows(), memory);
  if (x.numel() == 0) return;
  constexpr int width = 16 / sizeof(T);
  const Heads heads{.rows = x.rows(),
                    .pairs = x.columns() / 2,
                    .half = table.columns() / 2,
                    .positions = table.rows(),
                    .first = first.data(),
                    .sign = rotation == Rotation::forward ? 1.0f : -1.0f};
  const Cut cut = cut_for_vectors(x.columns(), width, {access(x), access(table)});
  const bool is_wide = !lane.plain && heads.half % width == 0 && cut.vectors * width == x.columns();
  launch(lane, "rope", is_wide ? rotate_rows<T, width> : rotate_rows<T, 1>,
         grid_of_elements(x.rows(), heads.pairs / (is_wide ? width : 1)), 0, heads, Rows<T>(x),
         Rows<const float>(table));
}

FSDP_FOR_TYPES(compute, Lane, Rope, Scratch)

}  // namespace fsdp::device::cuda

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Dot products of a row with the rows of a matrix, and weighted sums of the rows. The matrix is read once,
/// sequentially, at memory bandwidth. oneDNN packs such a matrix first, and reaches only about 0.6 of this rate.
#include "../../../cpu/kernels/vector.hpp"
#include "tables.hpp"

namespace fsdp::device::cpu {
namespace {

template <class T>
void products(const T* a, const T* rows, std::int64_t stride, std::int64_t columns, float* sums, std::int64_t count) {
  for (std::int64_t row = 0; row < count; ++row, rows += stride)
    sums[row] = sum_over(columns, [=](std::int64_t i, auto part)
                                      FSDP_INLINE_LAMBDA { return load(a + i, part) * load(rows + i, part); });
}

/// Computes the first N registers of columns of the sum, which stay in registers over all rows.
template <int N, class T>
FSDP_INLINE void add_block(const T* weights, const T* rows, std::int64_t stride, float* out, std::int64_t count) {
  Floats sums[N];
  for (int i = 0; i < N; ++i) sums[i] = load(out + i * lanes);
  for (std::int64_t row = 0; row < count; ++row, rows += stride) {
    const Floats weight = broadcast(static_cast<float>(weights[row]));
    for (int i = 0; i < N; ++i) sums[i] += weight * load(rows + i * lanes);
  }
  for (int i = 0; i < N; ++i) store(out + i * lanes, sums[i]);
}

template <class T>
void weighted_sum(const T* weights, const T* rows, std::int64_t stride, std::int64_t columns, float* out,
                  std::int64_t count) {
  std::int64_t column = 0;
  for (; column + 4 * lanes <= columns; column += 4 * lanes)
    add_block<4>(weights, rows + column, stride, out + column, count);
  for (; column + lanes <= columns; column += lanes) add_block<1>(weights, rows + column, stride, out + column, count);
  for (std::int64_t row = 0; row < count && column < columns; ++row) {
    const std::int64_t left = columns - column;
    const Floats weight = broadcast(static_cast<float>(weights[row]));
    store(out + column, load(out + column, left) + weight * load(rows + row * stride + column, left), left);
  }
}

constexpr RowProductKernels exported = {{{.products = products<float>, .weighted_sum = weighted_sum<float>},
                                         {.products = products<bf16>, .weighted_sum = weighted_sum<bf16>}}};

}  // namespace
}  // namespace fsdp::device::cpu

FSDP_EXPORT_KERNELS(RowProductKernels)

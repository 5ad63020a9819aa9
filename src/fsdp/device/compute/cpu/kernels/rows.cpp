// SPDX-License-Identifier: Apache-2.0
/// @file
/// Kernels over rows: RMS norm, rotary positions, products with the rows of a matrix, and the parts of a softmax.
#include "../../../cpu/kernels/vector.hpp"
#include "tables.hpp"

namespace fsdp::device::cpu {
namespace {

template <class T, class W>
void norm(const T* x, std::int64_t x_stride, const W* w, float eps, T* y, std::int64_t y_stride, float* rstd,
          std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row, x += x_stride, y += y_stride) {
    const float squares = sum_over(columns, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
      const Floats value = load(x + i, part);
      return value * value;
    });
    const float scale = 1.0f / __builtin_sqrtf(squares / static_cast<float>(columns) + eps);
    rstd[row] = scale;
    for_vectors(columns, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
      // Rounded to the weight's type before the multiplication, as in Hugging Face's LlamaRMSNorm.
      store(y + i, rounded_to(W{}, load(x + i, part) * scale) * load(w + i, part), part);
    });
  }
}

// `accumulate` is a constant, so that the compiler fuses the last product and sum in every part of a row.
template <bool accumulate, class T, class W>
FSDP_INLINE void norm_backward_row(const T* x, const W* w, float scale, const T* dy, T* dx, float* dw,
                                   std::int64_t columns) {
  const float product = sum_over(columns, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
    return load(dy + i, part) * load(w + i, part) * load(x + i, part);
  });
  // dx = rstd * (dy w - xhat mean(dy w xhat)), xhat = x rstd
  const float mean = product * scale / static_cast<float>(columns);
  for_vectors(columns, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
    const Floats normalised = load(x + i, part) * scale;
    const Floats gradient = load(dy + i, part);
    store(dw + i, load(dw + i, part) + gradient * normalised, part);
    Floats result = (gradient * load(w + i, part) - normalised * mean) * scale;
    if constexpr (accumulate) result += load(dx + i, part);
    store(dx + i, result, part);
  });
}

template <class T, class W>
void norm_backward(const T* x, std::int64_t x_stride, const W* w, const float* rstd, const T* dy,
                   std::int64_t dy_stride, T* dx, std::int64_t dx_stride, bool accumulate, float* dw, std::int64_t rows,
                   std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row, x += x_stride, dy += dy_stride, dx += dx_stride) {
    if (accumulate)
      norm_backward_row<true>(x, w, rstd[row], dy, dx, dw, columns);
    else
      norm_backward_row<false>(x, w, rstd[row], dy, dx, dw, columns);
  }
}

template <class T>
void rotate(T* x, const float* table_row, float sign, std::int64_t heads, std::int64_t head_dim) {
  const std::int64_t half = head_dim / 2;
  for (std::int64_t head = 0; head < heads; ++head, x += head_dim) {
    for_vectors(half, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
      const Floats cosine = load(table_row + i, part);
      const Floats sine = load(table_row + half + i, part) * sign;
      const Floats low = load(x + i, part);
      const Floats high = load(x + half + i, part);
      store(x + i, low * cosine - high * sine, part);
      store(x + half + i, high * cosine + low * sine, part);
    });
  }
}

// Products with the rows of a matrix read it once, sequentially, at memory bandwidth. oneDNN packs such a matrix first,
// and reaches only about 0.6 of this rate.

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

/// Computes a row's maximum and sum of exp(value - maximum). The maximum may miss a NaN; the sum propagates it.
template <class T>
void maximum_and_sum(const T* row, std::int64_t count, float* result, double* total) {
  constexpr float least = -__builtin_inff();
  Floats a = broadcast(least), b = a;
  std::int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    a = larger_of(load(row + i), a);
    b = larger_of(load(row + i + lanes), b);
  }
  for (; i + lanes <= count; i += lanes) a = larger_of(load(row + i), a);
  if (i < count) b = larger_of(keep(load(row + i, count - i), count - i, least), b);
  const float most = maximum(larger_of(a, b));

  // Sums short chunks in float, and the chunks' sums in double.
  constexpr std::int64_t chunk = 4096;
  double sums = 0;
  for (std::int64_t begin = 0; begin < count; begin += chunk) {
    Floats partial = {};
    for_vectors(count - begin < chunk ? count - begin : chunk,
                [&partial, from = row + begin, most](std::int64_t j, auto part)
                    FSDP_INLINE_LAMBDA { partial += keep(exponential(load(from + j, part) - most), part, 0.0f); });
    for (std::int64_t lane = 0; lane < lanes; ++lane) sums += static_cast<double>(partial[lane]);
  }
  *result = most;
  *total = sums;
}

template <class T>
void scaled_exponential(T* row, std::int64_t count, float most, float factor) {
  for_vectors(count, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
    store(row + i, exponential(load(row + i, part) - most) * factor, part);
  });
}

template <class T, class W>
constexpr NormFunctions<T, W> norm_functions = {.norm = norm<T, W>, .norm_backward = norm_backward<T, W>};
template <class T>
constexpr RowFunctions<T> row_functions = {.rotate = rotate<T>,
                                           .products = products<T>,
                                           .weighted_sum = weighted_sum<T>,
                                           .maximum_and_sum = maximum_and_sum<T>,
                                           .scaled_exponential = scaled_exponential<T>};

}  // namespace

FSDP_EXPORT_KERNELS(RowKernels, {{row_functions<float>, row_functions<bf16>},
                                 norm_functions<float, float>,
                                 norm_functions<bf16, bf16>,
                                 norm_functions<bf16, float>})

}  // namespace fsdp::device::cpu

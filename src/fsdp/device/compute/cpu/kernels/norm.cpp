// SPDX-License-Identifier: Apache-2.0
/// @file
/// RMS norm over ranges of rows.
#include "../../../cpu/kernels/vector.hpp"
#include "tables.hpp"

namespace fsdp::device::cpu {
namespace {

template <class T>
void forward(const T* x, std::int64_t x_stride, const T* w, float eps, T* y, std::int64_t y_stride, float* rstd,
             std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row, x += x_stride, y += y_stride) {
    const float squares = sum_over(columns, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
      const Floats value = load(x + i, part);
      return value * value;
    });
    const float scale = 1.0f / __builtin_sqrtf(squares / static_cast<float>(columns) + eps);
    rstd[row] = scale;
    for_vectors(columns, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
      // Rounded before the multiplication by the weight, as in Hugging Face's LlamaRMSNorm.
      store(y + i, rounded_to(T{}, load(x + i, part) * scale) * load(w + i, part), part);
    });
  }
}

template <bool accumulate, class T>
FSDP_INLINE void backward_row(const T* x, const T* w, float scale, const T* dy, T* dx, float* dw,
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

template <class T>
void backward(const T* x, std::int64_t x_stride, const T* w, const float* rstd, const T* dy, std::int64_t dy_stride,
              T* dx, std::int64_t dx_stride, bool accumulate, float* dw, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row, x += x_stride, dy += dy_stride, dx += dx_stride) {
    if (accumulate)
      backward_row<true>(x, w, rstd[row], dy, dx, dw, columns);
    else
      backward_row<false>(x, w, rstd[row], dy, dx, dw, columns);
  }
}

constexpr NormKernels exported = {
    {{.forward = forward<float>, .backward = backward<float>}, {.forward = forward<bf16>, .backward = backward<bf16>}}};

}  // namespace
}  // namespace fsdp::device::cpu

FSDP_EXPORT_KERNELS(NormKernels)

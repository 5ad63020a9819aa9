// SPDX-License-Identifier: Apache-2.0
/// @file
/// The parts of a softmax over one row.
#include "../../../cpu/kernels/vector.hpp"
#include "tables.hpp"

namespace fsdp::device::cpu {
namespace {

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

template <class T>
constexpr SoftmaxFunctions<T> functions = {.maximum_and_sum = maximum_and_sum<T>,
                                           .scaled_exponential = scaled_exponential<T>};
constexpr SoftmaxKernels exported = {{functions<float>, functions<bf16>}};

}  // namespace
}  // namespace fsdp::device::cpu

FSDP_EXPORT_KERNELS(SoftmaxKernels)

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sums, products with a scalar and conversions over ranges of elements.
#include "../../host_device.hpp"
#include "tables.hpp"
#include "vector.hpp"

namespace fsdp::device::cpu {
namespace {

template <class X, class Y>
void add(const X* x, Y* y, std::int64_t count) {
  for_vectors(count, [=](std::int64_t i, auto part)
                         FSDP_INLINE_LAMBDA { store(y + i, load(y + i, part) + load(x + i, part), part); });
}

template <class X, class Y>
void convert(const X* x, Y* y, std::int64_t count) {
  for_vectors(count, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA { store(y + i, load(x + i, part), part); });
}

template <class T>
void fill(T* y, float value, std::int64_t count) {
  const T rounded(value);
  for (std::int64_t i = 0; i < count; ++i) y[i] = rounded;
}

/// Returns the words 0, 1, 2, ..., one per lane.
FSDP_INLINE Words first_words() {
  Words words;
  for (std::int64_t lane = 0; lane < lanes; ++lane) words[lane] = static_cast<std::uint32_t>(lane);
  return words;
}

template <class X, class Y>
void scale(const X* x, Y* y, const Scaling& scaling, std::int64_t count) {
  const Words first = first_words() + scaling.column, row = Words{} + scaling.row;
  for_vectors(count, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
    Floats value = load(x + i, part) * scaling.factor;
    if (scaling.dropped_below != 0) {
      const Words word = dropout_word(row, first + static_cast<std::uint32_t>(i));
      value = word < scaling.dropped_below ? Floats{} : value;
    }
    if (scaling.accumulate) value += load(y + i, part);
    store(y + i, value, part);
  });
}

template <class T>
constexpr ElementwiseFunctions<T> functions = {.add = add<T, T>,
                                               .fill = fill<T>,
                                               .from_float = convert<float, T>,
                                               .to_float = convert<T, float>,
                                               .add_to_float = add<T, float>,
                                               .scale = scale<T, T>,
                                               .scale_to_float = scale<T, float>};
constexpr ElementwiseKernels exported = {{functions<float>, functions<bf16>}};

}  // namespace
}  // namespace fsdp::device::cpu

FSDP_EXPORT_KERNELS(ElementwiseKernels)

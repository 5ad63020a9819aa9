// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sums, products with a scalar, conversions and digests over ranges of elements.
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

template <class X, class Y>
void scale(const X* x, Y* y, const Scaling& scaling, std::int64_t count) {
  const Words first = reinterpret_cast<Words>(lane_numbers()) + scaling.column, row = Words{} + scaling.row;
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

// Digests. Let S[j] be the sum of the first j + 1 of n registers. The sum of all S[j] then weights register j by n - j,
// so weights by index need only additions.

using Longs [[gnu::vector_size(lanes * 4)]] = std::uint64_t;  // half as many lanes as Words

FSDP_INLINE Words bits_of(const float* from) { return reinterpret_cast<Words>(load(from)); }
FSDP_INLINE Words bits_of(const bf16* from) { return reinterpret_cast<Words>(load(from)) >> 16; }
FSDP_INLINE std::uint64_t bits_of_one(float value) { return __builtin_bit_cast(std::uint32_t, value); }
FSDP_INLINE std::uint64_t bits_of_one(bf16 value) { return __builtin_bit_cast(std::uint16_t, value); }

template <class T>
DigestSums digest(const T* x, std::int64_t count) {
  const std::int64_t registers = count / lanes;
  Longs even = {}, odd = {}, even_sums = {}, odd_sums = {};  // sums over lanes 0, 2, ... and over lanes 1, 3, ...
  for (std::int64_t j = 0; j < registers; ++j) {
    const auto pairs = reinterpret_cast<Longs>(bits_of(x + j * lanes));
    even += pairs & 0xffffffffu;
    odd += pairs >> 32;
    even_sums += even;
    odd_sums += odd;
  }
  DigestSums sums;
  const auto add_lane = [&](std::uint64_t lane, std::uint64_t all, std::uint64_t weighted) FSDP_INLINE_LAMBDA {
    const auto n = static_cast<std::uint64_t>(registers);
    sums.bits += all;
    sums.by_index += (n * all - weighted) * static_cast<std::uint64_t>(lanes) + lane * all;
  };
  for (std::int64_t i = 0; i < lanes / 2; ++i) {
    const auto lane = static_cast<std::uint64_t>(2 * i);
    add_lane(lane, even[i], even_sums[i]);
    add_lane(lane + 1, odd[i], odd_sums[i]);
  }
  for (std::int64_t i = registers * lanes; i < count; ++i) {
    const std::uint64_t bits = bits_of_one(x[i]);
    sums.bits += bits;
    sums.by_index += static_cast<std::uint64_t>(i) * bits;
  }
  return sums;
}

template <class T>
constexpr ElementwiseFunctions<T> elementwise_functions = {.add = add<T, T>,
                                                           .fill = fill<T>,
                                                           .from_float = convert<float, T>,
                                                           .to_float = convert<T, float>,
                                                           .add_to_float = add<T, float>,
                                                           .scale = scale<T, T>,
                                                           .scale_to_float = scale<T, float>,
                                                           .digest = digest<T>};

}  // namespace

FSDP_EXPORT_KERNELS(ElementwiseKernels, {{elementwise_functions<float>, elementwise_functions<bf16>}})

}  // namespace fsdp::device::cpu

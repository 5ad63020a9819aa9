// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sums of a digest, over a range of elements.
///
/// Let S[j] be the sum of the first j + 1 of n registers. The sum of all S[j] then weights register j by n - j, so
/// weights by index need only additions.
#include "tables.hpp"
#include "vector.hpp"

namespace fsdp::device::cpu {
namespace {

using Longs [[gnu::vector_size(lanes * 4)]] = std::uint64_t;  // half as many lanes as Words

FSDP_INLINE Words bits_of(const float* from) {
  Words words;
  __builtin_memcpy(&words, from, sizeof words);
  return words;
}
FSDP_INLINE Words bits_of(const bf16* from) {
  HalfWords halves;
  __builtin_memcpy(&halves, from, sizeof halves);
  return __builtin_convertvector(halves, Words);
}
FSDP_INLINE std::uint64_t bits_of_one(const float* from) {
  std::uint32_t word;
  __builtin_memcpy(&word, from, sizeof word);
  return word;
}
FSDP_INLINE std::uint64_t bits_of_one(const bf16* from) {
  std::uint16_t half;
  __builtin_memcpy(&half, from, sizeof half);
  return half;
}

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
    const std::uint64_t bits = bits_of_one(x + i);
    sums.bits += bits;
    sums.by_index += static_cast<std::uint64_t>(i) * bits;
  }
  return sums;
}

constexpr DigestKernels exported = {{.f32 = {digest<float>}, .half = {digest<bf16>}}};

}  // namespace
}  // namespace fsdp::device::cpu

FSDP_EXPORT_KERNELS(DigestKernels)

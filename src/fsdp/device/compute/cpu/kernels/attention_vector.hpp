// SPDX-License-Identifier: Apache-2.0
/// @file
/// Vector functions of attention's kernels, in addition to vector.hpp: masks by index, 2^x, rounding by one
/// instruction.
#pragma once

#include <cstdint>

#include "../../../cpu/kernels/vector.hpp"

namespace fsdp::device::cpu {
namespace {

constexpr float infinity = __builtin_inff();

/// Returns a mask with all bits set in lanes whose index is below `count`.
FSDP_INLINE Integers below(std::int64_t count) {
  Integers index = {};
  for (int lane = 0; lane < lanes; ++lane) index[lane] = lane;
  return index < static_cast<std::int32_t>(count);
}

/// Returns the larger of the two values; `old` if `value` is NaN.
FSDP_INLINE Floats larger(Floats value, Floats old) {
#if defined(__AVX512F__)
  return reinterpret_cast<Floats>(
      _mm512_maskz_max_ps(0xffff, reinterpret_cast<__m512>(value), reinterpret_cast<__m512>(old)));
#else
  return select(value > old, value, old);
#endif
}

/// Reduces the lanes to lane 0 by repeated halving, which is a shorter dependency chain than a loop over lanes.
template <class Fold>
FSDP_INLINE float fold_lanes(Floats value, Fold fold) {
#if defined(__AVX512F__)
  value = fold(value, __builtin_shufflevector(value, value, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  value = fold(value, __builtin_shufflevector(value, value, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  value = fold(value, __builtin_shufflevector(value, value, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  value = fold(value, __builtin_shufflevector(value, value, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
#elif defined(__AVX2__)
  value = fold(value, __builtin_shufflevector(value, value, 4, 5, 6, 7, 0, 1, 2, 3));
  value = fold(value, __builtin_shufflevector(value, value, 2, 3, 0, 1, 6, 7, 4, 5));
  value = fold(value, __builtin_shufflevector(value, value, 1, 0, 3, 2, 5, 4, 7, 6));
#else
  value = fold(value, __builtin_shufflevector(value, value, 2, 3, 0, 1));
  value = fold(value, __builtin_shufflevector(value, value, 1, 0, 3, 2));
#endif
  return value[0];
}
FSDP_INLINE float largest(Floats value) {
  return fold_lanes(value, [](Floats a, Floats b) FSDP_INLINE_LAMBDA { return larger(a, b); });
}
FSDP_INLINE float total(Floats value) {
  return fold_lanes(value, [](Floats a, Floats b) FSDP_INLINE_LAMBDA { return a + b; });
}

/// Stores like `store`, but subnormal bf16 may become 0, depending on the instruction set. For tiles that a matmul
/// reads.
FSDP_INLINE void store_operand(float* to, Floats value) { store(to, value); }
FSDP_INLINE void store_operand(bf16* to, Floats value) {
#if defined(__AVX512BF16__)
  const auto rounded = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(value));
  __builtin_memcpy(static_cast<void*>(to), &rounded, sizeof rounded);
#else
  store(to, value);
#endif
}

/// Returns 2^x for x < 128, with relative error below 2e-7; 0 for x < -100, so that products of results are rarely
/// subnormal, which is slow; NaN stays NaN. x = k + f with |f| <= 1/2: 2^f is computed by the polynomial with the least
/// relative error (Remez, 7.5e-8), 2^k by setting the exponent bits.
FSDP_INLINE Floats power_of_two(Floats x) {
  constexpr float to_integer = 12582912.0f;  // 1.5 * 2^23: adding it stores the nearest integer in the low bits
  const Floats shifted = x + to_integer;
  const Floats f = x - (shifted - to_integer);
  Floats power = f * 1.3276474e-3f + 9.6755413e-3f;
  power = power * f + 5.5507133e-2f;
  power = power * f + 2.4022120e-1f;
  power = power * f + 6.9314697e-1f;
  power = power * f + 1.0f;
  const Words exponent = (reinterpret_cast<Words>(shifted) << 23) + 0x3f800000u;
  return select(x < -100.0f, Floats{}, power * reinterpret_cast<Floats>(exponent));
}

}  // namespace
}  // namespace fsdp::device::cpu

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The vector type of kernels: one register of floats of the current instruction set.
///
/// It is a compiler vector type, so that both compilers generate the same loops. Everything is in an anonymous
/// namespace and forced inline, so that each instruction set has its own copy. bf16 is widened on load and rounded on
/// store.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <tessera/fsdp/core/dtype.hpp>

#define FSDP_INLINE [[gnu::always_inline]] inline
#define FSDP_INLINE_LAMBDA __attribute__((always_inline))

namespace fsdp::device::cpu {
namespace {

#if defined(__AVX512F__)
constexpr std::int64_t lanes = 16;
#elif defined(__AVX2__)
constexpr std::int64_t lanes = 8;
#else
constexpr std::int64_t lanes = 4;
#endif

using Floats [[gnu::vector_size(lanes * 4)]] = float;
using Words [[gnu::vector_size(lanes * 4)]] = std::uint32_t;
using Integers [[gnu::vector_size(lanes * 4)]] = std::int32_t;
using HalfWords [[gnu::vector_size(lanes * 2)]] = std::uint16_t;

/// Tag for a whole register, passed instead of the element count at the end of a range.
struct Whole {};

/// Calls step(index, Whole) for every whole register of [0, count), then step(index, elements left).
template <class Step>
FSDP_INLINE void for_vectors(std::int64_t count, Step step) {
  std::int64_t index = 0;
  for (; index + lanes <= count; index += lanes) step(index, Whole{});
  if (index < count) step(index, count - index);
}

FSDP_INLINE Floats broadcast(float value) { return value - Floats{}; }

FSDP_INLINE Floats widen(HalfWords halves) {
#if defined(__AVX512F__)
  return reinterpret_cast<Floats>(
      reinterpret_cast<Words>(_mm512_maskz_cvtepu16_epi32(0xffff, reinterpret_cast<__m256i>(halves))) << 16);
#elif defined(__aarch64__)  // g++ 12 would convert vectors of 64 bits lane by lane
  return reinterpret_cast<Floats>(reinterpret_cast<Words>(vmovl_u16(reinterpret_cast<uint16x4_t>(halves))) << 16);
#else
  return reinterpret_cast<Floats>(__builtin_convertvector(halves, Words) << 16);
#endif
}

/// Returns the number of elements of a part.
constexpr std::size_t size_of(Whole) { return static_cast<std::size_t>(lanes); }
constexpr std::size_t size_of(std::int64_t count) { return static_cast<std::size_t>(count); }

/// Loads a register, or the last `part` < lanes elements; the other lanes are then 0.
template <class Part = Whole>
FSDP_INLINE Floats load(const float* from, Part part = {}) {
  Floats value = {};
  __builtin_memcpy(&value, from, size_of(part) * sizeof(float));
  return value;
}
template <class Part = Whole>
FSDP_INLINE Floats load(const bf16* from, Part part = {}) {
  HalfWords halves = {};
  __builtin_memcpy(&halves, from, size_of(part) * sizeof(bf16));
  return widen(halves);
}

/// Rounds to bf16: to nearest, ties to even; NaN stays NaN. With AVX-512 BF16, numbers below 2^-126 become 0.
FSDP_INLINE HalfWords narrow(Floats value) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<HalfWords>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(value)));
#else
  const Words word = reinterpret_cast<Words>(value);
  const Words rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
  const Words quiet_nan = (word >> 16) | 0x40u;
  const Words is_nan = reinterpret_cast<Words>(value != value);
  return __builtin_convertvector((is_nan & quiet_nan) | (~is_nan & rounded), HalfWords);
#endif
}
template <class Part = Whole>
FSDP_INLINE void store(float* to, Floats value, Part part = {}) {
  __builtin_memcpy(to, &value, size_of(part) * sizeof(float));
}
template <class Part = Whole>
FSDP_INLINE void store(bf16* to, Floats value, Part part = {}) {
  const HalfWords halves = narrow(value);
  __builtin_memcpy(static_cast<void*>(to), &halves, size_of(part) * sizeof(bf16));
}

/// Returns the value after rounding to T.
FSDP_INLINE Floats rounded_to(float, Floats value) { return value; }
FSDP_INLINE Floats rounded_to(bf16, Floats value) { return widen(narrow(value)); }

FSDP_INLINE Integers lane_numbers() {
  Integers numbers = {};
  for (int lane = 0; lane < lanes; ++lane) numbers[lane] = lane;
  return numbers;
}
/// Returns a mask with all bits set in lanes whose index is below `count`.
FSDP_INLINE Integers below(std::int64_t count) { return lane_numbers() < static_cast<std::int32_t>(count); }
/// Returns the lanes of `yes` whose `condition` is true, and those of `no` otherwise.
FSDP_INLINE Floats select(Integers condition, Floats yes, Floats no) {
  return reinterpret_cast<Floats>((condition & reinterpret_cast<Integers>(yes)) |
                                  (~condition & reinterpret_cast<Integers>(no)));
}

/// Return the smaller or larger of each pair; `second` if either is NaN.
FSDP_INLINE Floats smaller_of(Floats first, Floats second) {
#if defined(__AVX512F__)
  return reinterpret_cast<Floats>(
      _mm512_maskz_min_ps(0xffff, reinterpret_cast<__m512>(first), reinterpret_cast<__m512>(second)));
#elif defined(__AVX2__)
  return reinterpret_cast<Floats>(_mm256_min_ps(reinterpret_cast<__m256>(first), reinterpret_cast<__m256>(second)));
#elif defined(__x86_64__)
  return reinterpret_cast<Floats>(_mm_min_ps(reinterpret_cast<__m128>(first), reinterpret_cast<__m128>(second)));
#else
  return select(first < second, first, second);
#endif
}
FSDP_INLINE Floats larger_of(Floats first, Floats second) {
#if defined(__AVX512F__)
  return reinterpret_cast<Floats>(
      _mm512_maskz_max_ps(0xffff, reinterpret_cast<__m512>(first), reinterpret_cast<__m512>(second)));
#elif defined(__AVX2__)
  return reinterpret_cast<Floats>(_mm256_max_ps(reinterpret_cast<__m256>(first), reinterpret_cast<__m256>(second)));
#elif defined(__x86_64__)
  return reinterpret_cast<Floats>(_mm_max_ps(reinterpret_cast<__m128>(first), reinterpret_cast<__m128>(second)));
#else
  return select(first > second, first, second);
#endif
}

/// Returns `value` in the first `count` lanes, `other` in the remaining lanes.
FSDP_INLINE Floats keep(Floats value, Whole, float) { return value; }
FSDP_INLINE Floats keep(Floats value, std::int64_t count, float other) {
  Floats kept = broadcast(other);
  __builtin_memcpy(&kept, &value, static_cast<std::size_t>(count) * sizeof(float));
  return kept;
}

/// Folds the lanes by repeated halving, which is a shorter dependency chain than a loop over lanes.
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
FSDP_INLINE float sum(Floats value) {
  return fold_lanes(value, [](Floats a, Floats b) FSDP_INLINE_LAMBDA { return a + b; });
}
FSDP_INLINE float maximum(Floats value) {
  return fold_lanes(value, [](Floats a, Floats b) FSDP_INLINE_LAMBDA { return larger_of(a, b); });
}
/// Sums step(index, part) over a row in four interleaved registers.
template <class Step>
FSDP_INLINE float sum_over(std::int64_t count, Step step) {
  Floats a = {}, b = {}, c = {}, d = {};
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    a += step(i, Whole{});
    b += step(i + lanes, Whole{});
    c += step(i + 2 * lanes, Whole{});
    d += step(i + 3 * lanes, Whole{});
  }
  for (; i + lanes <= count; i += lanes) a += step(i, Whole{});
  if (i < count) b += step(i, count - i);
  return sum((a + b) + (c + d));
}

FSDP_INLINE Floats square_root(Floats value) {
#if defined(__AVX512F__)
  return reinterpret_cast<Floats>(_mm512_maskz_sqrt_ps(0xffff, reinterpret_cast<__m512>(value)));
#elif defined(__AVX2__)
  return reinterpret_cast<Floats>(_mm256_sqrt_ps(reinterpret_cast<__m256>(value)));
#elif defined(__x86_64__)
  return reinterpret_cast<Floats>(_mm_sqrt_ps(reinterpret_cast<__m128>(value)));
#else
  for (std::int64_t lane = 0; lane < lanes; ++lane) value[lane] = __builtin_sqrtf(value[lane]);
  return value;
#endif
}

/// Returns x * 2^n for integer n in [-150, 129], using two factors, because 2^n may not be representable as a float.
FSDP_INLINE Floats scaled(Floats x, Floats n) {
#if defined(__AVX512F__)
  return reinterpret_cast<Floats>(
      _mm512_maskz_scalef_ps(0xffff, reinterpret_cast<__m512>(x), reinterpret_cast<__m512>(n)));
#else
  const Integers exponent = __builtin_convertvector(n, Integers);
  const Integers half = exponent >> 1;
  const Words low = reinterpret_cast<Words>(half + 127) << 23;
  const Words high = reinterpret_cast<Words>(exponent - half + 127) << 23;
  return x * reinterpret_cast<Floats>(low) * reinterpret_cast<Floats>(high);
#endif
}

/// Returns e^x within about 1 ulp, down to subnormals; 0 and infinity outside the range; NaN stays NaN.
/// Polynomial: S. Moshier, Cephes, expf.
FSDP_INLINE Floats exponential(Floats x) {
  x = larger_of(broadcast(-104.0f), smaller_of(broadcast(89.0f), x));
  constexpr float to_integer = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const Floats shifted = x * 1.44269504088896341f + to_integer;
  const Floats n = shifted - to_integer;
  const Floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  return scaled(p, n);
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

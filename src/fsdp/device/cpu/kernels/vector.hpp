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

FSDP_INLINE Floats load(const float* from, Whole = {}) {
  Floats value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
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
FSDP_INLINE Floats load(const bf16* from, Whole = {}) {
  HalfWords halves;
  __builtin_memcpy(&halves, from, sizeof halves);
  return widen(halves);
}

/// Loads the last `count` < lanes elements; the other lanes are 0.
FSDP_INLINE Floats load(const float* from, std::int64_t count) {
  Floats value = {};
  __builtin_memcpy(&value, from, static_cast<std::size_t>(count) * sizeof(float));
  return value;
}
FSDP_INLINE Floats load(const bf16* from, std::int64_t count) {
  HalfWords halves = {};
  __builtin_memcpy(&halves, from, static_cast<std::size_t>(count) * sizeof(bf16));
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
FSDP_INLINE void store(float* to, Floats value, Whole = {}) { __builtin_memcpy(to, &value, sizeof value); }
FSDP_INLINE void store(float* to, Floats value, std::int64_t count) {
  __builtin_memcpy(to, &value, static_cast<std::size_t>(count) * sizeof(float));
}
FSDP_INLINE void store(bf16* to, Floats value, Whole = {}) {
  const HalfWords halves = narrow(value);
  __builtin_memcpy(static_cast<void*>(to), &halves, sizeof halves);
}
FSDP_INLINE void store(bf16* to, Floats value, std::int64_t count) {
  const HalfWords halves = narrow(value);
  __builtin_memcpy(static_cast<void*>(to), &halves, static_cast<std::size_t>(count) * sizeof(bf16));
}

/// Returns the value after rounding to T.
FSDP_INLINE Floats rounded_to(float, Floats value) { return value; }
FSDP_INLINE Floats rounded_to(bf16, Floats value) { return widen(narrow(value)); }

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
  for (std::int64_t lane = 0; lane < lanes; ++lane)
    first[lane] = first[lane] < second[lane] ? first[lane] : second[lane];
  return first;
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
  for (std::int64_t lane = 0; lane < lanes; ++lane)
    first[lane] = first[lane] > second[lane] ? first[lane] : second[lane];
  return first;
#endif
}

/// Returns `value` in the first `count` lanes, `other` in the remaining lanes.
FSDP_INLINE Floats keep(Floats value, Whole, float) { return value; }
FSDP_INLINE Floats keep(Floats value, std::int64_t count, float other) {
  Floats kept = broadcast(other);
  __builtin_memcpy(&kept, &value, static_cast<std::size_t>(count) * sizeof(float));
  return kept;
}

/// Adds the lanes by repeated halving.
FSDP_INLINE float sum(Floats value) {
#if defined(__AVX2__)
  __m256 whole;
  __builtin_memcpy(&whole, &value, sizeof whole);
#if defined(__AVX512F__)
  __m256 upper;
  __builtin_memcpy(&upper, reinterpret_cast<const char*>(&value) + sizeof whole, sizeof upper);
  whole = _mm256_add_ps(whole, upper);
#endif
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(whole), _mm256_extractf128_ps(whole, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
#else
  return (value[0] + value[2]) + (value[1] + value[3]);
#endif
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

FSDP_INLINE float maximum(Floats value) {
  float most = value[0];
  for (std::int64_t lane = 1; lane < lanes; ++lane) most = value[lane] > most ? value[lane] : most;
  return most;
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

}  // namespace
}  // namespace fsdp::device::cpu

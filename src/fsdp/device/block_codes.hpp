// SPDX-License-Identifier: Apache-2.0
/// @file
/// The arithmetic of codes in blocks, one element at a time, shared by all devices. Loops over it are vectorised by the
/// compiler. Every operation is rounded by itself (files that include this are compiled without contraction), so that
/// codes and values are bit-identical on all devices and instruction sets.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <tessera/fsdp/device/operations/codec.hpp>

#include "host_device.hpp"

namespace fsdp::device {

/// The dynamic map of bitsandbytes 0.50.2 (create_dynamic_map): decade i of 0 to 6 is cut into 2^i equal parts
/// (unsigned 2^(i + 1)), and a value is the middle of a part; also 0 and 1. The arithmetic is that of torch.linspace on
/// the CPU, so the floats are the same. The signed map has the negatives of all values but 1 in addition.
struct DynamicMap {
  static constexpr std::uint32_t first_bucket = (127 - 23) << 7;  ///< below all midpoints
  static constexpr std::uint32_t buckets = (23 << 7) + 1;
  float values[256] = {};  ///< by code
  int zero = 0;            ///< code of 0
  /// For the numbers with the same sign, exponent and first 7 bits of the mantissa, among which is at most one
  /// midpoint: the rank of the values below it << 17, and the last 16 bits of the midpoint, or 2^17 - 1 if there is
  /// none.
  std::uint32_t nearest[buckets] = {};

  constexpr explicit DynamicMap(bool is_signed) : zero(is_signed ? 127 : 0) {
    constexpr float decades[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1};
    values[255] = 1;
    int rank = 0;  // of a magnitude
    for (int decade = 0; decade < 7; ++decade) {
      const int parts = 1 << (is_signed ? decade : decade + 1);
      const float step = (1.0f - 0.1f) / static_cast<float>(parts);
      const auto border = [&](int k) {
        return static_cast<float>(k < (parts + 1) / 2 ? double{0.1f} + double{step} * k
                                                      : 1 - double{step} * (parts - k));
      };
      for (int k = 0; k < parts; ++k) {
        const float value = decades[decade] * ((border(k) + border(k + 1)) / 2);
        values[zero + ++rank] = value;
        if (is_signed) values[zero - rank] = -value;
      }
    }
    std::uint32_t below = 0;
    for (std::uint32_t bucket = 0; bucket < buckets; ++bucket) {
      nearest[bucket] = below << 17 | 0x1ffff;
      if (below == static_cast<std::uint32_t>(255 - zero)) continue;
      const float* const next = values + zero + below;
      const auto midpoint = __builtin_bit_cast(std::uint32_t, 0.5f * (next[0] + next[1]));
      if (midpoint >> 16 == first_bucket + bucket) nearest[bucket] = below++ << 17 | (midpoint & 0xffff);
    }
  }

  /// Returns the rank of the value nearest to a magnitude of at most 1, which is given by its bits: of two at the same
  /// distance, that of the smaller value, or of the larger magnitude if `negative` is 1.
  FSDP_BOTH std::uint32_t rank_of(std::uint32_t bits, std::uint32_t negative) const {
    const std::uint32_t top = bits >> 16;
    const std::uint32_t entry = nearest[top > first_bucket ? top - first_bucket : 0];
    return (entry >> 17) + ((bits & 0xffff) + negative > (entry & 0x1ffff) ? 1 : 0);
  }
};

/// The values of NormalFloat4, as in bitsandbytes.
struct NormalFloat4 {
  float values[16] = {-1.0f,
                      -0.6961928009986877f,
                      -0.5250730514526367f,
                      -0.39491748809814453f,
                      -0.28444138169288635f,
                      -0.18477343022823334f,
                      -0.09105003625154495f,
                      0.0f,
                      0.07958029955625534f,
                      0.16093020141124725f,
                      0.24611230194568634f,
                      0.33791524171829224f,
                      0.44070982933044434f,
                      0.5626170039176941f,
                      0.7229568362236023f,
                      1.0f};
};

FSDP_BOTH std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
FSDP_BOTH float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

/// A block's scale, and the factors that divide by it. Small scales are divided in two steps, since 1 / scale may be
/// infinite. `inverse` is 0 if all codes are that of 0: in a block of zeros, or with an element that is not finite.
struct BlockScale {
  float scale = 0, lift = 0, inverse = 0;

  /// `largest`: the bits of the largest magnitude. `top`: the value of the largest code.
  FSDP_BOTH BlockScale(std::uint32_t largest, float top) {
    constexpr std::uint32_t infinity = 0x7f800000, quiet_nan = 0x7fc00000;
    scale = largest >= infinity ? float_of(quiet_nan) : float_of(largest) / top;
    if (!(scale > 0)) return;
    lift = scale < 0x1p-64f ? 0x1p64f : 1;
    inverse = 1 / (scale * lift);
  }
  FSDP_BOTH float ratio(float x) const { return x * lift * inverse; }
};

/// The codes of each kind: `code(x, word)` of a ratio of element and scale, `value(code)`. `word`: 32 random bits, used
/// if `stochastic`.
template <BlockKind kind>
struct BlockCodes;

FSDP_BOTH float clamped(float x, float most) { return x > most ? most : x < -most ? -most : x; }
/// Returns x, at most 127 in magnitude, as an integer: the nearest, ties to even, or the largest that is at most x plus
/// a random fraction, which has 16 bits, so that integers stay.
FSDP_BOTH int rounded(float x, std::uint32_t word, bool stochastic) {
  const float fraction = static_cast<float>(static_cast<int>(word >> 16)) * 0x1p-16f;
  const int down = static_cast<int>(x + 128 + fraction) - 128;
  const auto nearest = static_cast<int>(bits_of(x + 0x1.8p23f) - bits_of(0x1.8p23f));
  return stochastic ? down : nearest;
}

template <>
struct BlockCodes<BlockKind::int8> {
  static constexpr float top = 127;
  FSDP_BOTH std::uint8_t code(float x, std::uint32_t word, bool stochastic) const {
    return static_cast<std::uint8_t>(rounded(clamped(x, top), word, stochastic));
  }
  FSDP_BOTH float value(std::uint8_t code) const { return static_cast<float>(static_cast<std::int8_t>(code)); }
};

template <>
struct BlockCodes<BlockKind::fp8> {
  static constexpr float top = 448;
  FSDP_BOTH std::uint8_t code(float x, std::uint32_t word, bool stochastic) const {
    constexpr std::uint32_t least = 127 - 6;  // exponent of the smallest normal number
    const float magnitude = fabsf(clamped(x, top));
    const std::uint32_t own = bits_of(magnitude) >> 23, exponent = own > least ? own : least;
    const float quanta = magnitude * float_of((257 - exponent) << 23);  // below 16; exact
    const auto bits = static_cast<std::uint32_t>(rounded(quanta, word, stochastic) - 8) + ((exponent - least + 1) << 3);
    return static_cast<std::uint8_t>(bits | (bits_of(x) >> 31 << 7));
  }
  FSDP_BOTH float value(std::uint8_t code) const {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const auto quanta = static_cast<float>(exponent > 0 ? mantissa + 8 : mantissa);
    const int power = exponent > 0 ? exponent : 1;  // quanta are 2^(power - 10)
    const float magnitude = quanta * float_of(static_cast<std::uint32_t>(power + 117) << 23);
    return code > 127 ? -magnitude : magnitude;
  }
};

template <>
struct BlockCodes<BlockKind::dynamic8> {
  static constexpr float top = 1;
  const DynamicMap& map;
  FSDP_BOTH std::uint8_t code(float x, std::uint32_t, bool) const {
    const std::uint32_t bits = bits_of(clamped(x, 1)), negative = bits >> 31;
    const int rank = static_cast<int>(map.rank_of(bits & 0x7fffffff, negative));
    const int kept = negative != 0 && rank > 127 ? 127 : rank;
    return static_cast<std::uint8_t>(negative != 0 ? map.zero - kept : map.zero + kept);
  }
  FSDP_BOTH float value(std::uint8_t code) const { return map.values[code]; }
};

template <>
struct BlockCodes<BlockKind::dynamic8_unsigned> : BlockCodes<BlockKind::dynamic8> {
  FSDP_BOTH std::uint8_t code(float x, std::uint32_t, bool) const {
    return static_cast<std::uint8_t>(map.rank_of(bits_of(x > 0 ? clamped(x, 1) : 0), 0));
  }
};

template <>
struct BlockCodes<BlockKind::nf4> {
  static constexpr float top = 1;
  const NormalFloat4& map;
  FSDP_BOTH std::uint8_t code(float x, std::uint32_t, bool) const {
    int code = 0;
#if defined(__CUDACC__)
#pragma unroll
#endif
    for (int i = 0; i < 15; ++i) code += x > (map.values[i] + map.values[i + 1]) / 2 ? 1 : 0;
    return static_cast<std::uint8_t>(code);
  }
  FSDP_BOTH float value(std::uint8_t code) const { return map.values[code]; }
};

/// Rounds to bf16: to nearest even, or stochastically by 16 random bits. NaN stays NaN.
FSDP_BOTH std::uint16_t bf16_bits(float x, std::uint32_t word, bool stochastic) {
  const std::uint32_t bits = bits_of(x), nearest = 0x7fffu + (bits >> 16 & 1);
  const std::uint32_t sum = (bits + (stochastic ? word >> 16 : nearest)) >> 16;
  return static_cast<std::uint16_t>(x != x ? (bits >> 16 | 0x40u) : sum);
}

/// Return the codes of AdamW's moments in a block. The first moment's sign stays, as in bitsandbytes' kernels; a second
/// moment above 0 stays above 0, so that the first moment is never divided by eps alone.
FSDP_BOTH std::uint8_t first_moment_byte(const BlockCodes<BlockKind::dynamic8>& codes, const BlockScale& scale,
                                         float moment) {
  const int zero = codes.map.zero, code = codes.code(scale.ratio(moment), 0, false);
  const int guarded = code == zero && moment < 0 ? zero - 1 : code;
  return static_cast<std::uint8_t>(scale.inverse == 0 ? 0 : guarded);
}
FSDP_BOTH std::uint8_t second_moment_byte(const BlockCodes<BlockKind::dynamic8_unsigned>& codes,
                                          const BlockScale& scale, float moment) {
  const int code = codes.code(scale.ratio(moment), 0, false);
  return static_cast<std::uint8_t>(scale.inverse == 0 ? 0 : code == 0 && moment > 0 ? 1 : code);
}

}  // namespace fsdp::device

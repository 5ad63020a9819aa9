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

FSDP_BOTH std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
FSDP_BOTH float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

/// The dynamic map of bitsandbytes (create_dynamic_map), by its decades instead of its 256 values. Decade d of 0 to 6
/// is from 10^(d - 7) to 10^(d - 6), cut into 2^d equal parts (unsigned 2^(d + 1)), and a value is the middle of a
/// part; also 0 and 1. Values are numbered by magnitude: 0 has rank 0, and those of decade d begin at rank 2^d
/// (unsigned 2^(d + 1) - 1), so the exponent of rank + is_unsigned is the decade + is_unsigned. Entry 7 of the tables
/// is for 1.
struct DynamicMap {
  static constexpr float least = 0x1p-23f;  ///< replaces smaller magnitudes, which all become 0
  int is_unsigned = 0;
  float next[8] = {};    ///< above it, a magnitude is in the next decade
  float slope[8] = {};   ///< ranks per unit
  float offset[8] = {};  ///< of a decade's ranks + is_unsigned, at a magnitude of 0
  float part[8] = {};    ///< width of a part
  float start[8] = {};   ///< where the decade begins

  constexpr explicit DynamicMap(bool is_signed) : is_unsigned(is_signed ? 0 : 1) {
    double end = 1e-6;  // of decade d
    for (int d = 0; d < 8; ++d, end *= 10) {
      const int parts = 1 << (d + is_unsigned);
      const double width = 0.9 * end / parts, above = d < 6 ? end + 4.5 * end / (2 * parts) : 1;
      next[d] = d < 7 ? static_cast<float>((end - width / 2 + above) / 2) : 2;
      slope[d] = d < 7 ? static_cast<float>(1 / width) : 0;
      offset[d] = static_cast<float>(d < 7 ? parts * 8 / 9.0 : parts);
      part[d] = d < 7 ? static_cast<float>(width) : 0;
      start[d] = d < 7 ? static_cast<float>(0.1 * end) : 1;
    }
    // Decade 0 begins at half of its first value, and its slope leads from there to the border of its parts or further.
    const double first = is_signed ? 2.75e-7 : 1.625e-7, slope_of_first = is_signed ? 1 / first : 1 / (5.5e-7 - first);
    slope[0] = static_cast<float>(slope_of_first);
    offset[0] = static_cast<float>(1 + is_unsigned - first * slope_of_first);
  }

  /// Returns the rank of the value nearest to a magnitude below 2; next to the middle of two values, rounding decides.
  FSDP_BOTH int rank_of(float x) const {
    x = x > least ? x : least;
    // A decade that is that of x or the one before it: 2^(e - 23) is in decade 0.301 e + 0.08.
    const int before = (static_cast<int>(bits_of(x) >> 23) - (127 - 23)) * 19 >> 6;
    const int decade = before + (x > next[before] ? 1 : 0), last = (2 << (decade + is_unsigned)) - 1;
    const float position = x * slope[decade];
    const int at = static_cast<int>(position + offset[decade]);
    return (at > last ? last : at) - is_unsigned;
  }
  FSDP_BOTH float value_of(int rank) const {
    const float middle = static_cast<float>(rank + is_unsigned) + 0.5f;
    const std::uint32_t power = bits_of(middle) >> 23;
    const int decade = static_cast<int>(power) - 127 - is_unsigned;
    const float value = (middle - float_of(power << 23)) * part[decade & 7];
    return rank == 0 ? 0 : value + start[decade & 7];
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
  /// Returns x / scale, about; 0 if `inverse` is 0.
  FSDP_BOTH float ratio(float x) const { return inverse > 0 ? x * lift * inverse : 0; }
};

/// The codes of each kind: `code(x, word)` of a ratio of element and scale, `value(code)`. `word`: 32 random bits, used
/// if `stochastic`.
template <BlockKind kind>
struct BlockCodes;

FSDP_BOTH float clamped(float x, float most) {
  x = most < x ? most : x;
  return -most > x ? -most : x;
}
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
struct BlockCodes<BlockKind::dynamic8> {  // 127 is 0, 0 to 126 are negative, 255 is 1; -1 is absent
  static constexpr float top = 1;
  const DynamicMap& map;
  FSDP_BOTH std::uint8_t code(float x, std::uint32_t, bool) const {
    const int rank = map.rank_of(fabsf(x));
    return static_cast<std::uint8_t>(x < 0 ? 127 - (rank < 127 ? rank : 127) : 127 + rank);
  }
  FSDP_BOTH float value(std::uint8_t code) const {
    const float magnitude = map.value_of(code < 127 ? 127 - code : code - 127);
    return code < 127 ? -magnitude : magnitude;
  }
};

template <>
struct BlockCodes<BlockKind::dynamic8_unsigned> {
  static constexpr float top = 1;
  const DynamicMap& map;
  FSDP_BOTH std::uint8_t code(float x, std::uint32_t, bool) const { return static_cast<std::uint8_t>(map.rank_of(x)); }
  FSDP_BOTH float value(std::uint8_t code) const { return map.value_of(code); }
};

template <>
struct BlockCodes<BlockKind::nf4> {
  static constexpr float top = 1;
  const NormalFloat4& map;
  FSDP_BOTH std::uint8_t code(float x, std::uint32_t, bool) const {
    int code = 0;
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

/// Return the codes of AdamW's moments in a block, from their codes. The first moment's sign stays, as in bitsandbytes'
/// kernels; a second moment above 0 stays above 0, so that the first moment is never divided by eps alone.
FSDP_BOTH int guarded_first(int code, float moment) { return code == 127 && moment < 0 ? 126 : code; }
FSDP_BOTH int guarded_second(int code, float moment) { return code == 0 && moment > 0 ? 1 : code; }

}  // namespace fsdp::device

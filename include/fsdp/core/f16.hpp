// SPDX-License-Identifier: Apache-2.0
/// @file
/// The IEEE 754 half: 5 bits of exponent, 10 of mantissa.
#pragma once

#include <bit>
#include <cstdint>

namespace fsdp {

/// An IEEE half, for storage only: convert to float to compute. Rounds to nearest, ties to even; overflows to infinity.
struct f16 {
  std::uint16_t bits = 0;

  constexpr f16() = default;
  /// Rounds to nearest, ties to even; overflows to infinity.
  constexpr explicit f16(float value) : bits(round(value)) {}
  /// Converts without rounding.
  constexpr operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 31u;
    const std::uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 0) {  // mantissa x 2^-24
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      return sign != 0 ? -magnitude : magnitude;
    }
    const std::uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
    return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
  }

  /// Returns the number with this bit pattern.
  static constexpr f16 from_bits(std::uint16_t bits) {
    f16 value;
    value.bits = bits;
    return value;
  }

 private:
  static constexpr std::uint16_t round(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((word >> 16) & 0x8000u);
    const std::uint32_t magnitude = word & 0x7fffffffu;
    const auto signed_bits = [&](std::uint32_t half) { return static_cast<std::uint16_t>(sign | half); };
    if (magnitude > 0x7f800000u) return signed_bits(0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) return signed_bits(0x7c00u);  // 65520 and larger values round to infinity
    if (magnitude < 0x38800000u) {                              // below 2^-14: a multiple of 2^-24
      const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;
      const auto whole = static_cast<std::uint32_t>(scaled);
      const float rest = scaled - static_cast<float>(whole);
      return signed_bits(whole + (rest > 0.5f || (rest == 0.5f && (whole & 1u) != 0) ? 1u : 0u));
    }
    const std::uint32_t rebiased = magnitude - (112u << 23);
    return signed_bits((rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13);
  }
};

static_assert(sizeof(f16) == 2);

}  // namespace fsdp

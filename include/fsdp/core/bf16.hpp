// SPDX-License-Identifier: Apache-2.0
/// @file
/// bfloat16: float's sign and exponent, 7 bits of mantissa.
#pragma once

#include <bit>
#include <cstdint>

namespace fsdp {

/// A bfloat16 number, for storage only: convert to float to compute. Rounds to nearest, ties to even; NaN stays NaN.
/// The conversions are forced inline because kernels are compiled once per instruction set (see src/fsdp/device/cpu).
struct bf16 {
  std::uint16_t bits = 0;

  constexpr bf16() = default;
  /// Rounds to nearest, ties to even.
  [[gnu::always_inline]] constexpr explicit bf16(float value) : bits(round(value)) {}
  /// Converts without rounding.
  [[gnu::always_inline]] constexpr operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

  /// Returns the number with this bit pattern.
  static constexpr bf16 from_bits(std::uint16_t bits) {
    bf16 value;
    value.bits = bits;
    return value;
  }

 private:
  [[gnu::always_inline]] static constexpr std::uint16_t round(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (word >> 16) | 0x40u;
    return static_cast<std::uint16_t>((word & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
  }
};

static_assert(sizeof(bf16) == 2);

}  // namespace fsdp

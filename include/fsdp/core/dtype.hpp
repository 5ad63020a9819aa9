// SPDX-License-Identifier: Apache-2.0
/// @file
/// Element types of tensors: bfloat16 and IEEE half for storage; run-time tag, size and name of each type. To add a
/// type, add an enumerator, a line in dtype_of and Element, and a row in detail::dtypes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>

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

/// Element types of buffers, files and messages.
enum class DType : std::uint8_t { f64, f32, bf16, f16, i64, i32, u8 };

/// Returns the tag of element type T.
template <class T>
consteval DType dtype_of() {
  using Element = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Element, double>) return DType::f64;
  if constexpr (std::is_same_v<Element, float>) return DType::f32;
  if constexpr (std::is_same_v<Element, bf16>) return DType::bf16;
  if constexpr (std::is_same_v<Element, f16>) return DType::f16;
  if constexpr (std::is_same_v<Element, std::int64_t>) return DType::i64;
  if constexpr (std::is_same_v<Element, std::int32_t>) return DType::i32;
  if constexpr (std::is_same_v<Element, std::uint8_t>) return DType::u8;
}

/// An element type that tensors support.
template <class T>
concept Element =
    std::is_same_v<T, double> || std::is_same_v<T, float> || std::is_same_v<T, bf16> || std::is_same_v<T, f16> ||
    std::is_same_v<T, std::int64_t> || std::is_same_v<T, std::int32_t> || std::is_same_v<T, std::uint8_t>;

/// An element type that matmuls and activations support.
template <class T>
concept Real = std::is_same_v<T, float> || std::is_same_v<T, bf16> || std::is_same_v<T, f16>;

namespace detail {
struct DTypeRow {
  std::string_view name;
  std::int64_t bytes;
};
inline constexpr DTypeRow dtypes[] = {{"f64", 8}, {"f32", 4}, {"bf16", 2}, {"f16", 2}, {"i64", 8},
                                      {"i32", 4}, {"u8", 1},  {"?", 0}};  // as DType; then any other number
constexpr const DTypeRow& row_of(DType dtype) {
  constexpr auto last = static_cast<std::size_t>(DType::u8);
  static_assert(std::size(dtypes) == last + 2);
  return dtypes[dtype <= DType::u8 ? static_cast<std::size_t>(dtype) : last + 1];
}
}  // namespace detail

/// Returns the size of one element in bytes.
constexpr std::int64_t size_of(DType dtype) { return detail::row_of(dtype).bytes; }

/// Returns the name of the type in messages, such as "bf16".
constexpr std::string_view name_of(DType dtype) { return detail::row_of(dtype).name; }

}  // namespace fsdp

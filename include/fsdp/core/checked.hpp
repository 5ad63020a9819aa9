// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks of numbers: integer arithmetic that throws on overflow, so that no overflowed size reaches an allocation;
/// ranges that a user may choose from; values that are infinite or NaN.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp {

/// Returns a + b. Throws InputError on overflow.
std::int64_t checked_add(std::int64_t a, std::int64_t b);

/// Returns a * b. Throws InputError on overflow.
std::int64_t checked_multiply(std::int64_t a, std::int64_t b);

/// Returns an enumerator's name from a list in the order of the enumerators; "?" for a number that is none of them.
template <class Enum>
constexpr std::string_view name_from(std::span<const std::string_view> names, Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < names.size() ? names[index] : "?";
}

/// Returns a / b rounded up, for a >= 0 and b > 0.
constexpr std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }

/// Returns the smallest multiple of `step` that is at least `value`.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) { return ceil_divide(value, step) * step; }

/// The numbers that a flag accepts: from `least` to `most`, both inclusive unless `above` or `below` is set.
template <class T>
struct Range {
  T least = std::numeric_limits<T>::lowest();  ///< smallest value
  T most = std::numeric_limits<T>::max();      ///< largest value
  bool above = false;                          ///< excludes `least`
  bool below = false;                          ///< excludes `most`

  /// Returns whether the range contains a value.
  bool holds(T value) const {
    return (above ? value > least : value >= least) && (below ? value < most : value <= most);
  }
  std::string text() const {
    const std::string low = message(above ? "above " : "at least ", least);
    return most == std::numeric_limits<T>::max() ? low : message(low, " and ", below ? "below " : "at most ", most);
  }
};

/// Throws InputError with the flag, the value and the range if the range does not contain the value.
template <class T>
void require_in_range(std::string_view flag, T value, const Range<T>& range) {
  require<InputError>(range.holds(value), "--", flag, " ", value, " must be ", range.text());
}

/// Returns whether a number is neither infinite nor NaN. It tests the bits, since std::isfinite may always return true
/// in a program that is compiled with -ffast-math or -Ofast.
constexpr bool is_finite(double value) { return (std::bit_cast<std::uint64_t>(value) >> 52 & 0x7ff) != 0x7ff; }

/// Returns the shortest text that parses to exactly this number: numbers are compared bit by bit, and 0.99999999 is not
/// printed as 1.
std::string exact_text(double number);

/// Returns the index of the first value that is infinite or NaN; -1 if there is none.
std::int64_t first_not_finite(std::span<const float> values);

}  // namespace fsdp

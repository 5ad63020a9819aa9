// SPDX-License-Identifier: Apache-2.0
/// @file
/// Numbers as text, whatever the locale.
#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace fsdp {

/// Returns the number that a whole text is; nothing if it is anything else, or does not fit T. `base`: of whole
/// numbers.
template <class T>
std::optional<T> parsed(std::string_view text, int base = 10) {
  T number{};
  std::from_chars_result read{};
  if constexpr (std::is_integral_v<T>)
    read = std::from_chars(text.data(), text.data() + text.size(), number, base);
  else
    read = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = read.ec == std::errc() && read.ptr == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

/// Returns the number that decimal digits say, or the largest std::int64_t for a larger one; nothing for any other
/// text.
inline std::optional<std::int64_t> number_of_digits(std::string_view digits) {
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  return parsed<std::int64_t>(digits).value_or(std::numeric_limits<std::int64_t>::max());
}

/// Returns the last hexadecimal digits of a number, in small letters.
inline std::string hexadecimal(std::uint64_t number, int digits) {
  std::string text;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) text += "0123456789abcdef"[number >> shift & 15];
  return text;
}

}  // namespace fsdp

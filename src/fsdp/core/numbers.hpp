// SPDX-License-Identifier: Apache-2.0
/// @file
/// Conversions between numbers and text, whatever the locale.
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace fsdp {

/// Returns the number that a text represents in full; nothing for any other text, or if the number does not fit T.
/// `base`: base of integers.
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

/// Returns the number with these decimal digits, or the largest std::int64_t for a larger one; nothing for any other
/// text.
inline std::optional<std::int64_t> number_of_digits(std::string_view digits) {
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  return parsed<std::int64_t>(digits).value_or(std::numeric_limits<std::int64_t>::max());
}

/// Returns the number of bytes that a text such as "4096" or "512MiB" specifies, or the largest std::int64_t for more;
/// nothing for any other text.
inline std::optional<std::int64_t> number_of_bytes(std::string_view text) {
  static constexpr std::array<std::string_view, 4> units = {"KiB", "MiB", "GiB", "TiB"};
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  std::int64_t scale = 1;
  for (std::size_t i = 0; i < units.size(); ++i)
    if (text.ends_with(units[i])) {
      text.remove_suffix(units[i].size());
      scale = std::int64_t{1} << (10 * (i + 1));
      break;
    }
  const std::optional<std::int64_t> number = number_of_digits(text);
  if (!number) return std::nullopt;
  return *number <= most / scale ? *number * scale : most;
}

/// Returns the last hexadecimal digits of a number, in lower case.
inline std::string hexadecimal(std::uint64_t number, int digits) {
  std::string text;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) text += "0123456789abcdef"[number >> shift & 15];
  return text;
}

}  // namespace fsdp

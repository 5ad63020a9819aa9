// SPDX-License-Identifier: Apache-2.0
/// @file
/// Strings, whatever the locale: case conversion of ASCII letters, parts between separators, conversions between
/// numbers and text.
#pragma once

#include <algorithm>
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
#include <vector>

namespace fsdp {

/// Returns the lower-case form of an ASCII capital letter, and any other byte unchanged.
constexpr char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Returns the text in lower case; bytes that are not ASCII are unchanged.
inline std::string ascii_lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return ascii_lower(c); });
  return text;
}

/// Returns the parts of a text between separators; one more than the number of separators.
inline std::vector<std::string_view> split_at(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  for (std::string_view rest = text;; rest.remove_prefix(parts.back().size() + 1)) {
    parts.push_back(rest.substr(0, rest.find(mark)));
    if (parts.back().size() == rest.size()) return parts;
  }
}

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

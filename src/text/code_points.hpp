// SPDX-License-Identifier: Apache-2.0
/// @file
/// UTF-8 and code points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace fsdp::text {

inline constexpr char32_t code_point_end = 0x110000;
inline constexpr std::string_view replacement = "\xEF\xBF\xBD";  ///< U+FFFD

/// Returns the length of a code point in valid UTF-8, from its first byte.
inline std::size_t utf8_length(unsigned char first) {
  return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/// Returns the code point at `at` and advances `at` behind it. The text must be valid UTF-8.
inline char32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const std::size_t length = utf8_length(byte(0));
  char32_t code = byte(0);
  if (length == 2) code = (code & 0x1F) << 6 | (byte(1) & 0x3F);
  if (length == 3) code = (code & 0x0F) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3F);
  if (length == 4) code = (code & 0x07) << 18 | (byte(1) & 0x3FU) << 12 | (byte(2) & 0x3FU) << 6 | (byte(3) & 0x3F);
  at += length;
  return code;
}

/// Returns where the code point before `at` begins. The text must be valid UTF-8.
inline std::size_t previous_code_point(std::string_view text, std::size_t at) {
  do --at;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

inline void append_utf8(std::string& out, char32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  const auto rest = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x800) {
    out += {static_cast<char>(0xC0 | code >> 6), rest(0)};
  } else if (code < 0x10000) {
    out += {static_cast<char>(0xE0 | code >> 12), rest(6), rest(0)};
  } else {
    out += {static_cast<char>(0xF0 | code >> 18), rest(12), rest(6), rest(0)};
  }
}

/// Returns how many bytes at the beginning of the text are ASCII.
inline std::size_t ascii_length(std::string_view text) {
  std::size_t at = 0;
  for (std::uint64_t word = 0; at + 8 <= text.size(); at += 8) {
    std::memcpy(&word, text.data() + at, 8);
    if ((word & 0x8080808080808080U) != 0) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

inline bool is_ascii(std::string_view text) { return ascii_length(text) == text.size(); }

/// The code point, or the invalid bytes, at a place of a text.
struct Utf8Step {
  std::size_t length = 0;  ///< bytes of the code point, or of the invalid part
  bool valid = false;
  bool cut = false;  ///< the text ends within a code point that is valid so far
};

/// Returns the step at the beginning of a text, which must not be empty. An invalid part is Unicode's "maximal
/// subpart", as in Python's errors="replace" and Rust's from_utf8_lossy.
Utf8Step utf8_step(std::string_view text);

/// Returns how many bytes at the beginning of the text are valid UTF-8.
std::size_t valid_length(std::string_view text);

/// Appends the text, with U+FFFD in place of each invalid part.
void append_replacing(std::string& out, std::string_view text);

}  // namespace fsdp::text

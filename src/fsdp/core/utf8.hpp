// SPDX-License-Identifier: Apache-2.0
/// @file
/// UTF-8 as bytes: the ends of code points, and invalid bytes.
#pragma once

#include <cstddef>
#include <string_view>

namespace fsdp {

/// Returns the length of a code point in valid UTF-8, from its first byte.
inline std::size_t utf8_length(unsigned char first) {
  return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/// Returns whether a byte continues a code point, i.e. is not its first byte.
constexpr bool continues_code_point(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

/// Returns the code point at `at` and advances `at` to the next one. The text must be valid UTF-8.
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

/// The code point, or the invalid bytes, at a position of a text.
struct Utf8Step {
  std::size_t length = 0;  ///< bytes of the code point, or of the invalid part
  bool valid = false;
  bool cut = false;  ///< the text ends within a code point that is valid so far
};

/// Returns the step at the beginning of a text, which must not be empty. An invalid part is Unicode's "maximal
/// subpart", as in Python's errors="replace" and Rust's from_utf8_lossy.
Utf8Step utf8_step(std::string_view text);

/// Returns whether all of a text is valid UTF-8.
bool is_utf8(std::string_view text);

}  // namespace fsdp

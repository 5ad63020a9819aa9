// SPDX-License-Identifier: Apache-2.0
/// @file
/// Texts as code points: UTF-8, escapes, normalization forms and case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "../../fsdp/core/utf8.hpp"

namespace fsdp::text {

inline constexpr char32_t code_point_end = 0x110000;
inline constexpr std::string_view replacement = "\xEF\xBF\xBD";  ///< U+FFFD

using fsdp::next_code_point;
using fsdp::utf8_length;
using fsdp::utf8_step;
using fsdp::Utf8Step;

/// Returns where the code point before `at` begins. The text must be valid UTF-8.
inline std::size_t previous_code_point(std::string_view text, std::size_t at) {
  do --at;
  while (continues_code_point(text[at]));
  return at;
}

/// Returns the code point that ends at `at`. The text must be valid UTF-8.
inline char32_t code_point_before(std::string_view text, std::size_t at) {
  at = previous_code_point(text, at);
  return next_code_point(text, at);
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

inline bool is_surrogate(char32_t code) { return code >= 0xD800 && code < 0xE000; }

/// An escape of JSON at the beginning of a text: \uXXXX, or two that are the surrogates of one code point.
struct UnicodeEscape {
  std::size_t length = 0;  ///< in bytes, 6 or 12; 0 if the text does not begin with an escape
  char32_t code = 0;       ///< a surrogate if the other one of its pair is missing
};
UnicodeEscape unicode_escape(std::string_view text);

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

/// Returns how many bytes at the beginning of the text are valid UTF-8.
std::size_t valid_length(std::string_view text);

/// Appends the text, with U+FFFD in place of each invalid part.
void append_replacing(std::string& out, std::string_view text);

enum class UnicodeForm { nfc, nfd, nfkc, nfkd };

/// Appends a text in UTF-8 in the given form, in the Unicode version that the Python package `tokenizers` uses:
/// utf8proc provides decompositions, compositions and combining classes, and unicode_sets.hpp the code points to use
/// them for. Takes linear time, also for long sequences of combining marks.
void append_normalized(std::string& out, std::string_view text, UnicodeForm form);

/// Return the upper or lower case of a code point, or itself: simple mappings of utf8proc's Unicode version.
char32_t upper_of(char32_t code);
char32_t lower_of(char32_t code);

}  // namespace fsdp::text

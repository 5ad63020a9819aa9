// SPDX-License-Identifier: Apache-2.0
/// @file
/// Case conversion of ASCII letters, whatever the locale.
#pragma once

#include <algorithm>
#include <string>

namespace fsdp {

/// Returns the lower-case form of an ASCII capital letter, and any other byte unchanged.
constexpr char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Returns the text in lower case; bytes that are not ASCII are unchanged.
inline std::string ascii_lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return ascii_lower(c); });
  return text;
}

}  // namespace fsdp

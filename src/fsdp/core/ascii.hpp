// SPDX-License-Identifier: Apache-2.0
/// @file
/// Letters of ASCII, whatever the locale.
#pragma once

#include <algorithm>
#include <string>

namespace fsdp {

/// Returns a capital letter's small one, and any other byte itself.
constexpr char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Returns the text with small letters; bytes that are not ASCII stay.
inline std::string ascii_lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return ascii_lower(c); });
  return text;
}

}  // namespace fsdp

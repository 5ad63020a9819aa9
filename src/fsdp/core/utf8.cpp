// SPDX-License-Identifier: Apache-2.0
#include "utf8.hpp"

namespace fsdp {

Utf8Step utf8_step(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {.length = 1, .valid = true};
  if (first < 0xC2 || first > 0xF4) return {.length = 1};
  // Bounds of the second byte: exclude overlong forms, surrogates and code points above U+10FFFF.
  const unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  const std::size_t length = utf8_length(first);
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {.length = i, .cut = true};
    if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) return {.length = i};
  }
  return {.length = length, .valid = true};
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (!step.valid) return false;
    text.remove_prefix(step.length);
  }
  return true;
}

}  // namespace fsdp

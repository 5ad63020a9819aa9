// SPDX-License-Identifier: Apache-2.0
#include "code_points.hpp"

namespace fsdp::text {

std::size_t valid_length(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    at += ascii_length(text.substr(at));
    if (at == text.size()) break;
    const Utf8Step step = utf8_step(text.substr(at));
    if (!step.valid) break;
    at += step.length;
  }
  return at;
}

void append_replacing(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const std::size_t valid = valid_length(text);
    out += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) return;
    out += replacement;
    text.remove_prefix(utf8_step(text).length);
  }
}

}  // namespace fsdp::text

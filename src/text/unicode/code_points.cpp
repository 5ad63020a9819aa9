// SPDX-License-Identifier: Apache-2.0
#include "code_points.hpp"

#include <optional>

#include "../../fsdp/core/strings.hpp"

namespace fsdp::text {
namespace {

/// Returns the code unit of \uXXXX at the beginning of a text; nothing for other texts.
std::optional<std::uint32_t> escaped_unit(std::string_view text) {
  if (text.size() < 6 || !text.starts_with("\\u")) return std::nullopt;
  return parsed<std::uint32_t>(text.substr(2, 4), 16);
}

}  // namespace

UnicodeEscape unicode_escape(std::string_view text) {
  const std::optional<std::uint32_t> high = escaped_unit(text);
  if (!high) return {};
  const bool leads = *high >= 0xD800 && *high < 0xDC00;
  const std::optional<std::uint32_t> low = leads ? escaped_unit(text.substr(6)) : std::nullopt;
  if (low && *low >= 0xDC00 && *low < 0xE000)
    return {.length = 12, .code = 0x10000 + ((*high - 0xD800) << 10) + (*low - 0xDC00)};
  return {.length = 6, .code = *high};
}

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

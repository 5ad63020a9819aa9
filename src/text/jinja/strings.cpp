// SPDX-License-Identifier: Apache-2.0
#include "strings.hpp"

#include <algorithm>

#include "../../fsdp/core/strings.hpp"
#include "../unicode/code_points.hpp"
#include "../unicode/unicode_sets.hpp"
#include "value.hpp"

namespace fsdp::text::jinja {
namespace {

bool is_of(std::optional<std::string_view> set, char32_t code) {
  if (!set) return is_space(code);
  for (std::size_t at = 0; at < set->size();)
    if (next_code_point(*set, at) == code) return true;
  return false;
}

/// Returns whether a code point is in a general category, which is given by its letters.
template <char... category>
bool is_in(char32_t code) {
  static const CodePointSet members = *property_set(std::string{category...});
  return members.contains(code);
}

std::string mapped(std::string_view text, char32_t (*map)(char32_t)) {
  spend(text.size() / 16);
  std::string out;
  for (std::size_t at = 0; at < text.size();) append_utf8(out, map(next_code_point(text, at)));
  return out;
}

std::vector<std::string_view> words(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> parts;
  for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
    spend(1);
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
      parts.push_back(text);
      break;
    }
    std::size_t end = 0;
    for (std::size_t at = 0; at < text.size() && !is_space(next_code_point(text, at));) end = at;
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<std::string_view> words_from_right(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> parts;
  for (text = strip_right(text); !text.empty(); text = strip_right(text)) {
    spend(1);
    std::size_t begin = most >= 0 && static_cast<std::int64_t>(parts.size()) == most ? 0 : text.size();
    while (begin > 0 && !is_space(code_point_before(text, begin))) begin = previous_code_point(text, begin);
    parts.push_back(text.substr(begin));
    text = text.substr(0, begin);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

bool is_space(char32_t code) {
  return (code >= 9 && code <= 13) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

std::string_view strip_left(std::string_view text, std::optional<std::string_view> of) {
  if (of) spend(text.size() / 16 * of->size());
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size() && is_of(of, next_code_point(text, at));) begin = at;
  return text.substr(begin);
}

std::string_view strip_right(std::string_view text, std::optional<std::string_view> of) {
  if (of) spend(text.size() / 16 * of->size());
  std::size_t end = text.size();
  while (end > 0 && is_of(of, code_point_before(text, end))) end = previous_code_point(text, end);
  return text.substr(0, end);
}

std::string_view strip(std::string_view text, std::optional<std::string_view> of) {
  return strip_left(strip_right(text, of), of);
}

std::int64_t length_of(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !continues_code_point(c); });
}

std::vector<std::string_view> characters(std::string_view text) {
  spend(text.size());
  std::vector<std::string_view> out;
  for (; !text.empty(); text.remove_prefix(out.back().size()))
    out.push_back(text.substr(0, utf8_length(static_cast<unsigned char>(text[0]))));
  return out;
}

std::string upper(std::string_view text) { return mapped(text, upper_of); }
std::string lower(std::string_view text) { return mapped(text, lower_of); }

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  const std::size_t first = utf8_length(static_cast<unsigned char>(text[0]));
  return upper(text.substr(0, first)) + lower(text.substr(first));
}

std::string title(std::string_view text) {
  std::string out;
  bool within = false;  // whether the previous character belongs to a word
  for (std::size_t at = 0; at < text.size();) {
    const char32_t code = next_code_point(text, at);
    append_utf8(out, within ? lower_of(code) : upper_of(code));
    within = is_upper(code) || is_lower(code);
  }
  return out;
}

std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator,
                                    std::int64_t most) {
  if (!separator) return words(text, most);
  if (separator->empty()) refuse("split: the separator is empty");
  spend_search(text, *separator);
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    spend(1);
    const std::size_t end = text.find(*separator, begin);
    if (end == text.npos) break;
    parts.push_back(text.substr(begin, end - begin));
    begin = end + separator->size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<std::string_view> split_right(std::string_view text, std::optional<std::string_view> separator,
                                          std::int64_t most) {
  if (!separator) return words_from_right(text, most);
  if (separator->empty()) refuse("rsplit: the separator is empty");
  spend_search(text, *separator);
  std::vector<std::string_view> parts;
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    spend(1);
    const std::size_t begin = text.rfind(*separator);
    if (begin == text.npos) break;
    parts.push_back(text.substr(begin + separator->size()));
    text = text.substr(0, begin);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  const auto ends_line = [](char32_t c) {
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
  };
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const char32_t code = next_code_point(text, at);
    if (!ends_line(code)) continue;
    if (code == '\r' && at < text.size() && text[at] == '\n') ++at;
    spend(1);
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

void spend_search(std::string_view text, std::string_view what) { spend(text.size() / 16 + search_steps(text, what)); }

std::string replaced(std::string_view text, std::string_view what, std::string_view by, std::int64_t most) {
  spend_search(text, what);
  std::string out;
  std::size_t at = 0;
  for (std::int64_t count = 0; most < 0 || count < most; ++count) {
    require_short(out);
    // An empty text is found before each character and at the end.
    const std::size_t found = what.empty() ? at : text.find(what, at);
    if (found == text.npos) break;
    out.append(text.substr(at, found - at)).append(by);
    at = found + what.size();
    if (!what.empty()) continue;
    if (at == text.size()) return out;
    const std::size_t length = utf8_length(static_cast<unsigned char>(text[at]));
    out.append(text.substr(at, length));
    at += length;
  }
  return out.append(text.substr(at));
}

std::optional<std::int64_t> whole_number(std::string_view text, int base) {
  if (text.starts_with('+') && text.size() > 1 && text[1] != '-') text.remove_prefix(1);
  return parsed<std::int64_t>(text, base);
}

std::optional<double> real_number(std::string_view text) {
  if (text.starts_with('+') && text.size() > 1 && text[1] != '-') text.remove_prefix(1);
  return parsed<double>(text);
}

bool is_alphabetic(char32_t code) { return is_in<'L'>(code); }
bool is_decimal_digit(char32_t code) { return is_in<'N', 'd'>(code); }
bool is_upper(char32_t code) { return is_in<'L', 'u'>(code); }
bool is_lower(char32_t code) { return is_in<'L', 'l'>(code); }

}  // namespace fsdp::text::jinja

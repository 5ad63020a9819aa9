// SPDX-License-Identifier: Apache-2.0
#include "code_points.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include <utf8proc.h>

#include <tessera/fsdp/core/error.hpp>

#include "../../fsdp/core/strings.hpp"
#include "unicode_sets.hpp"

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

namespace {

enum Flag : std::uint8_t {
  changed_by_nfc = 1,
  changed_by_nfd = 2,
  changed_by_nfkd = 4,
  reordered = 8,          // its combining class is not 0
  bound_to_the_left = 16  // may combine with the previous character, in some normalization form
};

using CodePoints = std::vector<utf8proc_int32_t>;

void append_decomposed(CodePoints& out, utf8proc_int32_t code, bool compatible) {
  constexpr std::size_t longest = 64;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  const std::size_t size = out.size();
  out.resize(size + longest);
  int last_boundary = 0;
  const auto count = utf8proc_decompose_char(code, out.data() + size, longest, options, &last_boundary);
  require(count > 0 && count <= static_cast<std::ptrdiff_t>(longest), "utf8proc does not decompose code point ", code);
  out.resize(size + static_cast<std::size_t>(count));
}

CodePoints decomposed(utf8proc_int32_t code, bool compatible) {
  CodePoints parts;
  append_decomposed(parts, code, compatible);
  return parts;
}

/// Canonical composition of an ordered text, in place.
void compose(CodePoints& text) {
  constexpr auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  const auto length = utf8proc_normalize_utf32(text.data(), std::ssize(text), options);
  text.resize(static_cast<std::size_t>(length));
}

/// Sets the flags of all code points.
void set_flags(std::vector<std::uint8_t>& flags) {
  const auto flag = [&](utf8proc_int32_t code) -> std::uint8_t& { return flags[static_cast<std::size_t>(code)]; };
  const auto visit = [](std::string_view name, const auto& each) {
    for (const CodePointRange& range : unicode_set(name).ranges())
      for (char32_t code = range.begin; code < range.end; ++code) each(static_cast<utf8proc_int32_t>(code));
  };
  visit("reordered", [&](utf8proc_int32_t code) { flag(code) |= reordered | bound_to_the_left; });
  visit("nfkd", [&](utf8proc_int32_t code) {
    flag(code) |= changed_by_nfkd;
    const CodePoints itself = {code};
    CodePoints parts = decomposed(code, false);
    if (parts == itself) return;
    flag(code) |= changed_by_nfd;
    const utf8proc_int32_t last = parts.back();
    compose(parts);
    if (parts == itself)
      flag(last) |= bound_to_the_left;
    else
      flag(code) |= changed_by_nfc;
  });
  visit("nfkd", [&](utf8proc_int32_t code) {
    for (const bool compatible : {false, true})
      flag(code) |= flag(decomposed(code, compatible).front()) & bound_to_the_left;
  });
}

const CodePointTable& all_flags() {
  static const CodePointTable flags(set_flags);
  return flags;
}

int combining_class(utf8proc_int32_t code) {
  const bool mark = (all_flags()[static_cast<char32_t>(code)] & reordered) != 0;
  return mark ? utf8proc_get_property(code)->combining_class : 0;
}

/// Canonical ordering: sorts runs of marks by combining class; stable.
void order(CodePoints& text) {
  std::vector<std::pair<int, utf8proc_int32_t>> marks;  // with their combining classes, so that each is looked up once
  for (auto begin = text.begin(); begin != text.end();) {
    marks.clear();
    auto end = begin;
    for (int of_mark = 0; end != text.end() && (of_mark = combining_class(*end)) != 0; ++end)
      marks.emplace_back(of_mark, *end);
    std::ranges::stable_sort(marks, {}, &std::pair<int, utf8proc_int32_t>::first);
    std::ranges::transform(marks, begin, &std::pair<int, utf8proc_int32_t>::second);
    begin = end == text.end() ? end : end + 1;
  }
}

/// Composes an ordered segment. Its first character may be part of a composed character that only a later version of
/// Unicode has, which utf8proc may know. Then nothing is composed. That omits no valid composition, since no other
/// character of a segment begins one.
void compose_segment(CodePoints& segment) {
  const CodePoints apart = segment;
  compose(segment);
  const bool known = (all_flags()[static_cast<char32_t>(segment[0])] & changed_by_nfd) != 0;
  if (segment[0] != apart[0] && !known) segment = apart;
}

}  // namespace

void append_normalized(std::string& out, std::string_view text, UnicodeForm form) {
  const bool composes = form == UnicodeForm::nfc || form == UnicodeForm::nfkc;
  const bool compatible = form == UnicodeForm::nfkc || form == UnicodeForm::nfkd;
  const CodePointTable& flags = all_flags();
  const std::uint8_t decomposed_by = compatible ? changed_by_nfkd : changed_by_nfd;
  const int alone =
      form == UnicodeForm::nfc ? int{changed_by_nfc} : int{decomposed_by};  // flag to test if there are no marks
  CodePoints part;
  for (std::size_t at = 0; at < text.size();) {
    if (const std::size_t ascii = ascii_length(text.substr(at)); ascii > 1) {
      const std::size_t length = at + ascii == text.size() ? ascii : ascii - 1;  // a mark may follow the last one
      out += text.substr(at, length);
      at += length;
      continue;
    }
    // A segment: one character and all characters that may combine with it.
    std::size_t end = at;
    const char32_t first = next_code_point(text, end);
    std::size_t behind = end;
    while (behind < text.size() && (flags[next_code_point(text, behind)] & bound_to_the_left) != 0) end = behind;
    if (end == at + utf8_length(static_cast<unsigned char>(text[at])) && (flags[first] & alone) == 0) {
      out += text.substr(at, end - at);
      at = end;
      continue;
    }
    part.clear();
    while (at < end) {
      const char32_t code = next_code_point(text, at);
      if ((flags[code] & decomposed_by) == 0)
        part.push_back(static_cast<utf8proc_int32_t>(code));
      else
        append_decomposed(part, static_cast<utf8proc_int32_t>(code), compatible);
    }
    order(part);
    if (composes) compose_segment(part);
    for (const utf8proc_int32_t code : part) append_utf8(out, static_cast<char32_t>(code));
  }
}

char32_t upper_of(char32_t code) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code)));
}

char32_t lower_of(char32_t code) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

}  // namespace fsdp::text

// SPDX-License-Identifier: Apache-2.0
#include "unicode_normalization.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include <tessera/fsdp/core/error.hpp>

#include "code_point_set.hpp"
#include "unicode_sets.hpp"

namespace fsdp::text {
namespace {

// Hangul syllables are composed by arithmetic: Unicode 3.12.
constexpr char32_t hangul_l = 0x1100, hangul_v = 0x1161, hangul_t = 0x11A7, hangul_s = 0xAC00;
constexpr char32_t hangul_ls = 19, hangul_vs = 21, hangul_ts = 28;

enum Flag : std::uint8_t {
  changed_by_nfc = 1,
  changed_by_nfd = 2,
  changed_by_nfkd = 4,
  reordered = 8,          // its combining class is not 0
  bound_to_the_left = 16  // may combine with the character before it, in some form
};

std::vector<char32_t> decompose(char32_t code, bool compatible) {
  std::array<utf8proc_int32_t, 64> buffer{};
  int last_boundary = 0;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), buffer.data(), buffer.size(), options,
                                             &last_boundary);
  require(count > 0 && count <= static_cast<std::ptrdiff_t>(buffer.size()), "utf8proc does not decompose code point ",
          static_cast<std::uint32_t>(code));
  return {buffer.begin(), buffer.begin() + count};
}

struct Tables {
  std::unordered_map<std::uint64_t, char32_t> composed;  // by first << 32 | second
  CodePointTable flags{[this](std::vector<std::uint8_t>& bytes) { fill(bytes); }};

  static std::uint64_t key(char32_t first, char32_t second) { return std::uint64_t{first} << 32 | second; }

 private:
  void fill(std::vector<std::uint8_t>& bytes) {
    const auto mark = [&](std::string_view name, Flag flag) {
      for (const CodePointRange& range : unicode_set(name).ranges())
        for (char32_t code = range.begin; code < range.end; ++code) bytes[code] |= flag;
    };
    mark("nfc", changed_by_nfc);
    mark("nfd", changed_by_nfd);
    mark("nfkd", changed_by_nfkd);
    mark("reordered", reordered);
    for (char32_t code = hangul_v; code < hangul_v + hangul_vs; ++code) bytes[code] |= bound_to_the_left;
    for (char32_t code = hangul_t + 1; code < hangul_t + hangul_ts; ++code) bytes[code] |= bound_to_the_left;
    // A character that NFD changes and NFC does not is composed of two: its first parts, composed, and its last part.
    std::unordered_map<std::u32string, char32_t> whole;
    std::vector<std::pair<std::u32string, char32_t>> all;
    for (const CodePointRange& range : unicode_set("nfd").ranges())
      for (char32_t code = range.begin; code < range.end; ++code) {
        if ((bytes[code] & changed_by_nfc) != 0 ||
            (code >= hangul_s && code < hangul_s + hangul_ls * hangul_vs * hangul_ts))
          continue;
        const std::vector<char32_t> parts = decompose(code, false);
        all.emplace_back(std::u32string(parts.begin(), parts.end()), code);
        whole.emplace(all.back().first, code);
      }
    for (const auto& [parts, code] : all) {
      const std::u32string left = parts.substr(0, parts.size() - 1);
      const auto first = left.size() == 1 ? left[0] : whole.contains(left) ? whole.at(left) : 0;
      require(first != 0, "utf8proc composes code point ", static_cast<std::uint32_t>(code),
              " in a way that is not known");
      composed.emplace(key(first, parts.back()), code);
      bytes[parts.back()] |= bound_to_the_left;
    }
    constexpr int bound = reordered | bound_to_the_left;
    for (const std::string_view name : {"reordered", "nfd", "nfkd"})
      for (const CodePointRange& range : unicode_set(name).ranges())
        for (char32_t code = range.begin; code < range.end; ++code) {
          const bool changes = (bytes[code] & changed_by_nfkd) != 0;
          const char32_t first = changes ? decompose(code, name == "nfkd").front() : code;
          if ((bytes[first] & bound) != 0) bytes[code] |= bound_to_the_left;
        }
  }
};

const Tables& tables() {
  static const Tables the_tables;
  return the_tables;
}

struct Character {
  char32_t code = 0;
  std::uint8_t combining_class = 0;
};

/// Returns the composition of two code points; 0 if there is none.
char32_t composition(char32_t first, char32_t second) {
  if (first >= hangul_l && first < hangul_l + hangul_ls && second >= hangul_v && second < hangul_v + hangul_vs)
    return hangul_s + ((first - hangul_l) * hangul_vs + (second - hangul_v)) * hangul_ts;
  if (first >= hangul_s && first < hangul_s + hangul_ls * hangul_vs * hangul_ts &&
      (first - hangul_s) % hangul_ts == 0 && second > hangul_t && second < hangul_t + hangul_ts)
    return first + (second - hangul_t);
  const auto found = tables().composed.find(Tables::key(first, second));
  return found == tables().composed.end() ? 0 : found->second;
}

/// Canonical ordering: sorts runs of marks by combining class; stable.
void order(std::vector<Character>& text) {
  for (auto begin = text.begin(); begin != text.end();) {
    const auto end = std::find_if(begin, text.end(), [](const Character& c) { return c.combining_class == 0; });
    std::stable_sort(begin, end,
                     [](const Character& a, const Character& b) { return a.combining_class < b.combining_class; });
    begin = end == text.end() ? end : end + 1;
  }
}

/// Canonical composition of an ordered text, in place.
void compose(std::vector<Character>& text) {
  std::size_t kept = 0, starter = text.size();
  for (std::size_t i = 0; i < text.size(); ++i) {
    const Character next = text[i];
    const bool adjacent = starter + 1 == kept;
    const bool blocked = !adjacent && kept > 0 && text[kept - 1].combining_class >= next.combining_class;
    if (starter < kept && !blocked) {
      if (const char32_t joined = composition(text[starter].code, next.code); joined != 0) {
        text[starter].code = joined;
        continue;
      }
    }
    if (next.combining_class == 0) starter = kept;
    text[kept++] = next;
  }
  text.resize(kept);
}

}  // namespace

void append_normalized(std::string& out, std::string_view text, UnicodeForm form) {
  const bool composes = form == UnicodeForm::nfc || form == UnicodeForm::nfkc;
  const bool compatible = form == UnicodeForm::nfkc || form == UnicodeForm::nfkd;
  const CodePointTable& flags = tables().flags;
  const std::uint8_t decomposed = compatible ? changed_by_nfkd : changed_by_nfd;
  const int alone = form == UnicodeForm::nfc ? int{changed_by_nfc} : int{decomposed};  // for a character without marks
  std::vector<Character> part;
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
      const auto add = [&](char32_t c) {
        const bool mark = (flags[c] & reordered) != 0;
        part.push_back({c, mark ? static_cast<std::uint8_t>(
                                      utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class)
                                : std::uint8_t{0}});
      };
      if ((flags[code] & decomposed) == 0) {
        add(code);
      } else {
        for (const char32_t c : decompose(code, compatible)) add(c);
      }
    }
    order(part);
    if (composes) compose(part);
    for (const Character& c : part) append_utf8(out, c.code);
  }
}

char32_t upper_of(char32_t code) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code)));
}

char32_t lower_of(char32_t code) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

}  // namespace fsdp::text

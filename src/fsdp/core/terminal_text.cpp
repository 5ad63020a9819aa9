// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/terminal_text.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "utf8.hpp"

namespace fsdp {
namespace {

/// Returns whether a code point controls a terminal, or changes the display of the text around it.
bool controls_display(char32_t code) {
  const bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
  const bool direction = code == 0x061C || code == 0x200E || code == 0x200F || (code >= 0x202A && code <= 0x202E) ||
                         (code >= 0x2066 && code <= 0x2069);
  // U+200C and U+200D, which join letters and emoji, are permitted: some languages need them.
  const bool unseen = code == 0x00AD || code == 0x200B || (code >= 0x2060 && code <= 0x2064) || code == 0xFEFF ||
                      (code >= 0xE0000 && code <= 0xE007F);
  return control || direction || unseen || code == 0x2028 || code == 0x2029;
}

void append_escape(std::string& out, char32_t code, bool is_byte) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(),
                is_byte         ? "\\x%02x"
                : code > 0xFFFF ? "\\U%08x"
                                : "\\u%04x",
                static_cast<unsigned>(code));
  out += text.data();
}

/// `lines`: leaves newlines and tabs unescaped.
std::string escaped(std::string_view text, bool lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    std::size_t at = 0;
    const char32_t code = step.valid ? next_code_point(text, at) : 0;
    if (!step.valid) {
      for (const char byte : text.substr(0, step.length)) append_escape(out, static_cast<unsigned char>(byte), true);
    } else if (code == '\n' || code == '\t') {
      out += lines ? std::string_view(text.data(), 1) : code == '\n' ? "\\n" : "\\t";
    } else if (controls_display(code)) {
      append_escape(out, code, code < 0x80);
    } else {
      out += text.substr(0, step.length);
    }
    text.remove_prefix(step.length);
  }
  return out;
}

/// Returns the largest number of bytes, up to `most`, that does not end within a character. `most` must be less than
/// the text's length.
std::size_t whole_characters(std::string_view text, std::size_t most) {
  for (std::size_t back = 0; back < 4 && back <= most; ++back)
    if (!continues_code_point(text[most - back])) return most - back;
  return most;  // not UTF-8
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, true); }

std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return escaped(text, false);
  return escaped(text.substr(0, whole_characters(text, most)), false) + "... (" + std::to_string(text.size()) +
         " bytes)";
}

std::string sentence(std::string_view text, std::size_t most) {
  if (text.size() <= most) return escaped(text, false);
  const std::size_t last = most / 4;  // bytes of the end that are printed: it contains the advice
  std::size_t from = text.size() - last;
  while (from < text.size() && continues_code_point(text[from])) ++from;
  const std::size_t first = most - last - 64;  // leaves room for the length, and for a prefix that a reader adds
  return escaped(text.substr(0, whole_characters(text, first)), false) + " ... (" + std::to_string(text.size()) +
         " bytes) ... " + escaped(text.substr(from), false);
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> older(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  std::iota(previous.begin(), previous.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], older[j - 2] + 1);
    }
    std::swap(older, previous);
    std::swap(previous, row);
  }
  return previous[b.size()];
}

std::string nearest(std::string_view word, std::span<const std::string> words) {
  const bool is_pattern = word.ends_with('*');  // a pattern is compared with the beginnings of the words
  if (is_pattern) word.remove_suffix(1);
  std::string best;
  std::size_t fewest = std::numeric_limits<std::size_t>::max(), length = 0;
  for (const std::string& known : words) {
    const std::string_view compared = std::string_view(known).substr(0, is_pattern ? word.size() : known.size());
    const std::size_t edits = edit_distance(word, compared);
    if (edits < fewest) best = known, fewest = edits, length = std::max(word.size(), compared.size());
  }
  if (best.empty() || fewest <= std::max<std::size_t>(length * 2 / 5, 1)) return best;
  const auto begins = std::ranges::find_if(words, [&](std::string_view known) {
    const std::size_t first_part = word.find_first_of("-_");  // `learning-rate` does not match the word `learn`
    const bool begins_it =
        word.starts_with(known) && (first_part == std::string_view::npos || first_part <= known.size());
    return std::min(word.size(), known.size()) >= 3 && (known.starts_with(word) || begins_it);
  });
  return begins == words.end() ? std::string() : *begins;
}

std::string suggestion(std::string_view word, std::span<const std::string> words) {
  const std::string near = nearest(word, words);
  std::string text = near.empty() ? "known: " : "did you mean '" + near + "'? Known: ";
  for (std::size_t i = 0; i < words.size(); ++i) text += (i == 0 ? "" : ", ") + words[i];
  return text;
}

std::string shell_word(std::string_view text) {
  if (!text.empty() &&
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,%+@") == text.npos)
    return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

}  // namespace fsdp

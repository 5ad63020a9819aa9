// SPDX-License-Identifier: Apache-2.0
/// @file
/// Byte strings for tokenizer tests, computed by a formula; text_strings.py makes the same strings in Python.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace fsdp::test {

inline const std::vector<std::string> sample_words = {
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "it",
    "was",
    "for",
    "on",
    "are",
    "with",
    "as",
    "his",
    "they",
    "be",
    "at",
    "one",
    "have",
    "this",
    "from",
    "or",
    "had",
    "by",
    "hot",
    "but",
    "some",
    "what",
    "there",
    "we",
    "can",
    "out",
    "other",
    "were",
    "all",
    "your",
    "when",
    "up",
    "use",
    "word",
    "how",
    "said",
    "an",
    "each",
    "she",
    "which",
    "their",
    "time",
    "if",
    "will",
    "way",
    "about",
    "many",
    "then",
    "them",
    "template",
    "typename",
    "constexpr",
    "static_cast",
    "std::vector",
    "std::size_t",
    "namespace",
    "inline",
    "return",
    "include",
    "define",
    "struct",
    "HTTPServer",
    "getElementById",
    "snake_case_name",
    "CamelCase",
    "na\xc3\xafve",
    "Stra\xc3\x9f"
    "e",
    "co\xc3\xb6perate",
    "fa\xc3\xa7"
    "ade",
    "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82",
    "\xd0\xbc\xd0\xb8\xd1\x80",
    "\xce\x95\xce\xbb\xce\xbb\xce\xb7\xce\xbd\xce\xb9\xce\xba\xce\xac",
    "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d",
    "\xd9\x85\xd8\xb1\xd8\xad\xd8\xa8\xd8\xa7",
    "\xe0\xa4\xa8\xe0\xa4\xae\xe0\xa4\xb8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87",
    "\xe0\xb8\xaa\xe0\xb8\xa7\xe0\xb8\xb1\xe0\xb8\xaa\xe0\xb8\x94\xe0\xb8\xb5",
    "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e",
    "\xe6\x9d\xb1\xe4\xba\xac",
    "\xe4\xb8\xad\xe6\x96\x87\xe5\xad\x97\xe7\xac\xa6",
    "\xec\x95\x88\xeb\x85\x95\xed\x95\x98\xec\x84\xb8\xec\x9a\x94",
    "\xe3\x81\xb2\xe3\x82\x89\xe3\x81\x8c\xe3\x81\xaa",
    "\xe3\x82\xab\xe3\x82\xbf\xe3\x82\xab\xe3\x83\x8a"};
inline const std::vector<std::string> sample_spaces = {
    " ",           " ", " ", "\x09", "\x0a", "\x0d\x0a", "\x0d", "\xc2\xa0", "\xe3\x80\x80", "\xc2\x85", "\xe2\x80\xa8",
    "\xe2\x80\x8b"};
inline const std::vector<std::string> sample_contractions = {
    "'s", "'t", "'re", "'VE", "'m", "'ll", "'LL", "'d", "'S", "'\xc5\xbf", "\xe2\x80\x99s", "'", "''s", "'x"};
inline const std::vector<std::string> sample_emoji = {
    "\xf0\x9f\x91\xa8", "\xf0\x9f\x91\xa9", "\xe2\x80\x8d",     "\xef\xb8\x8f",     "\xf0\x9f\x8f\xbd",
    "\xe2\x9d\xa4",     "\xf0\x9f\x87\xa9", "\xf0\x9f\x87\xaa", "\xf0\x9f\x98\x80", "\xe2\x83\xa3"};
inline const std::vector<std::string> sample_tokens = {
    "<s>",    "</s>",   "<unk>", "<|endoftext|>", "<|begin_of_text|>", "<|im_start|>", "<|im_end|>", "<mask>",
    "<tool>", "<0x41>", "<pad",  "[WORD]",        "Caf\xc3\xa9!",      "<|",           "   "};

/// SplitMix64 random numbers.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}

  std::uint64_t below(std::uint64_t count) { return (next() >> 33) % count; }
  const std::string& of(const std::vector<std::string>& many) { return many[below(many.size())]; }
  std::string of(const std::string& characters) { return {characters[below(characters.size())]}; }

 private:
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15U;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9U;
    z = (z ^ z >> 27) * 0x94D049BB133111EBU;
    return z ^ z >> 31;
  }
  std::uint64_t state_;
};

inline std::string utf8(std::uint64_t code) {
  const auto byte = [&](std::uint64_t mark, int shift) {
    return static_cast<char>(mark | (code >> shift & (mark == 0x80 ? 0x3F : 0x1F)));
  };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {byte(0xC0, 6), byte(0x80, 0)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | code >> 12), byte(0x80, 6), byte(0x80, 0)};
  return {static_cast<char>(0xF0 | code >> 18), byte(0x80, 12), byte(0x80, 6), byte(0x80, 0)};
}

inline std::string code_point(Draw& draw, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t code = begin + draw.below(end - begin);
  return utf8(code >= 0xD800 && code < 0xE000 ? code - 0x1000 : code);
}

inline std::string several(Draw& draw, std::uint64_t least, std::uint64_t most,
                           const std::function<std::string()>& one) {
  std::string text;
  for (std::uint64_t count = least + draw.below(most - least + 1); count > 0; --count) text += one();
  return text;
}

inline std::string sample_piece(Draw& draw) {
  static const std::string letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", digits = "0123456789",
                           signs = "!\"#$%&'()*+,-./:;<=>\?@[\\]^_`{|}~";
  const auto points = [&](std::uint64_t most, std::uint64_t begin, std::uint64_t end) {
    return several(draw, 1, most, [&] { return code_point(draw, begin, end); });
  };
  const auto items = [&](std::uint64_t least, std::uint64_t most, const auto& many) {
    return several(draw, least, most, [&] { return std::string(draw.of(many)); });
  };
  const std::uint64_t kind = draw.below(20);
  if (kind < 4) {
    const std::string space = draw.below(3) != 0 ? " " : "";
    return space + draw.of(sample_words);
  }
  if (kind == 4) return items(1, 12, letters);
  if (kind < 7) return items(1, 6, sample_spaces);
  if (kind == 7) return items(1, 8, digits);
  if (kind == 8) return items(1, 5, signs);
  if (kind == 9) return points(3, 0, 0x110000);
  if (kind == 10) return points(5, 0x80, 0x3000);
  if (kind == 11) return points(4, 0xA000, 0x20000);
  if (kind == 12) return items(1, 6, sample_emoji);
  if (kind == 13) return points(6, 0x3041, 0x9FFF);
  if (kind == 14) return items(1, 3, sample_contractions);
  if (kind == 15) {
    const std::string before = items(0, 2, sample_spaces), token = draw.of(sample_tokens);
    return before + token + items(0, 2, sample_spaces);
  }
  if (kind == 16) return several(draw, 1, 4, [&] { return std::string(1, static_cast<char>(draw.below(256))); });
  if (kind == 17) {
    const std::string letter = draw.of(letters);
    return letter + points(4, 0x300, 0x370);
  }
  if (kind == 18) return points(4, 0xF900, 0xFFFF);
  std::string text;
  if (draw.below(8) != 0) return std::string(draw.below(30), ' ');
  const std::string first = draw.of(letters), pair = first + draw.of(letters);
  for (std::uint64_t count = 1 + draw.below(150); count > 0; --count) text += pair;
  return text;
}

inline std::string sample_string(std::uint64_t index) {
  Draw draw(index);
  std::string text;
  for (std::uint64_t pieces = 1 + draw.below(12); pieces > 0; --pieces) text += sample_piece(draw);
  return text;
}

}  // namespace fsdp::test

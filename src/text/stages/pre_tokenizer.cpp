// SPDX-License-Identifier: Apache-2.0
#include "stages.hpp"

#include <algorithm>
#include <optional>

#include "../../fsdp/core/value_names.hpp"
#include "../unicode/code_points.hpp"
#include "../unicode/unicode_sets.hpp"

namespace fsdp::text {
namespace {

/// A match, or the text between two matches.
struct Stretch : Match {
  bool match = false;
};

/// Splits a text into matches and the text between them, and removes or joins them as `behavior` specifies.
void join(const std::vector<Match>& matches, std::size_t size, Delimiter behavior, bool invert, std::size_t shift,
          std::vector<Match>& spans) {
  const auto give = [&](std::size_t begin, std::size_t end) {
    if (begin < end) spans.push_back({shift + begin, shift + end});
  };
  if (behavior == Delimiter::isolated) {
    std::size_t done = 0;
    for (const Match& match : matches) {
      give(done, match.begin);
      give(match.begin, match.end);
      done = match.end;
    }
    give(done, size);
    return;
  }
  std::vector<Stretch> all;
  std::size_t done = 0;
  for (const Match& match : matches) {
    if (done != match.begin) all.push_back({{done, match.begin}, invert});
    all.push_back({match, !invert});
    done = match.end;
  }
  if (done != size) all.push_back({{done, size}, invert});
  if (behavior == Delimiter::removed) {
    for (const Stretch& one : all)
      if (!one.match) give(one.begin, one.end);
    return;
  }
  const auto joins = [&](const Stretch& left, const Stretch& right) {
    if (behavior == Delimiter::contiguous) return left.match == right.match;
    return behavior == Delimiter::merged_with_previous ? right.match && !left.match : left.match && !right.match;
  };
  for (std::size_t i = 0, begin = 0; i < all.size(); ++i) {
    if (i + 1 < all.size() && joins(all[i], all[i + 1])) continue;
    give(begin, all[i].end);
    begin = all[i].end;
  }
}

std::string_view part_of(const Words& words, const Match& span) {
  return words.text.substr(span.begin, span.end - span.begin);
}

template <class Find>
void split_each(Words& words, Delimiter behavior, bool invert, const Find& find) {
  words.other_spans.clear();
  for (const Match& span : words.spans) {
    words.matches.clear();
    const std::string_view text = part_of(words, span);
    find(text, words.matches);
    join(words.matches, text.size(), behavior, invert, span.begin, words.other_spans);
  }
  std::swap(words.spans, words.other_spans);
}

/// Rewrites each word by `append(word, out)` and updates the spans.
template <class Append>
void rewrite(Words& words, const Append& append) {
  words.other_buffer.clear();
  words.other_buffer.reserve(words.text.size() + words.text.size() / 4);
  for (Match& span : words.spans) {
    const std::size_t begin = words.other_buffer.size();
    append(span, words.other_buffer);
    span = {begin, words.other_buffer.size()};
  }
  std::swap(words.buffer, words.other_buffer);
  words.text = words.buffer;
}

void apply(const Split& split, Words& words, Budget& budget) {
  split_each(words, split.behavior, split.invert, [&](std::string_view text, std::vector<Match>& matches) {
    split.pattern.find_all(text, matches, budget);
  });
}

void apply(const Digits& digits, Words& words, Budget&) {
  static const CodePointSet& numeric = unicode_set("numeric");
  const auto is_digit = [&](char32_t code) {
    return code < 0x80 ? code >= '0' && code <= '9' : numeric.contains(code);
  };
  split_each(words, digits.individual ? Delimiter::isolated : Delimiter::contiguous, false,
             [&](std::string_view text, std::vector<Match>& matches) {
               for (std::size_t at = 0; at < text.size();) {
                 const std::size_t begin = at;
                 if (is_digit(next_code_point(text, at))) matches.push_back({begin, at});
               }
             });
}

void apply(const Metaspace& metaspace, Words& words, Budget&) {
  const std::string& mark = metaspace.replacement;
  rewrite(words, [&](const Match& span, std::string& out) {
    const std::string_view text = part_of(words, span);
    const bool first = span.begin == 0;
    const bool wanted = (metaspace.prepend == Metaspace::Prepend::always && !(words.follows && first)) ||
                        (metaspace.prepend == Metaspace::Prepend::first && words.at_begin && first);
    if (wanted && !text.starts_with(' ') && !text.starts_with(mark)) out += mark;
    for (const char c : text)
      if (c == ' ')
        out += mark;
      else
        out += c;
  });
  if (!metaspace.split) return;
  words.other_spans.clear();
  for (const Match& span : words.spans) {
    const std::string_view text = part_of(words, span);
    std::size_t begin = 0;
    for (std::size_t at = text.find(mark, 1); at != text.npos; at = text.find(mark, at + mark.size())) {
      words.other_spans.push_back({span.begin + begin, span.begin + at});
      begin = at;
    }
    words.other_spans.push_back({span.begin + begin, span.end});
  }
  std::swap(words.spans, words.other_spans);
}

void apply(const ByteLevel& byte_level, Words& words, Budget& budget) {
  const bool lacks = std::any_of(words.spans.begin(), words.spans.end(),
                                 [&](const Match& span) { return words.text[span.begin] != ' '; });
  if (byte_level.add_prefix_space && lacks)
    rewrite(words, [&](const Match& span, std::string& out) {
      const std::string_view text = part_of(words, span);
      if (!text.starts_with(' ') && !(words.follows && span.begin == 0)) out += ' ';
      out += text;
    });
  for (const RegularExpression& pattern : byte_level.pattern)
    split_each(words, Delimiter::isolated, false,
               [&](std::string_view text, std::vector<Match>& matches) { pattern.find_all(text, matches, budget); });
}

constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

constexpr ValueNames<Delimiter::contiguous> behaviors("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                                      "Contiguous");
constexpr ValueNames<Metaspace::Prepend::never> schemes("always", "first", "never");

Split read_split(const Keys& part) {
  const std::optional<Delimiter> behavior = behaviors.find(part.text("behavior"));
  if (!behavior)
    part.refuse("\"Split\" has the behavior \"", part.text("behavior"),
                "\"; there are Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous");
  const PatternText pattern = read_pattern_text(part);
  return {.pattern = pattern.literal ? RegularExpression::of_literal(pattern.text, part.source())
                                     : RegularExpression(pattern.text, part.source()),
          .behavior = *behavior,
          .invert = part.boolean("invert")};
}

Metaspace read_metaspace(const Keys& part) {
  const std::string replacement = character_at(part, "replacement");
  const std::string scheme = part.text("prepend_scheme", "always", Null::absent);
  const bool none = !part.boolean("add_prefix_space", true, Null::absent);
  const std::optional<Metaspace::Prepend> prepend = schemes.find(scheme);
  if (!prepend) part.refuse("\"Metaspace\" has the prepend_scheme \"", scheme, "\"; there are always, first and never");
  if (none && part.has("prepend_scheme") && scheme != "never")
    part.refuse("\"Metaspace\" has add_prefix_space false, and the prepend_scheme \"", scheme, "\"; write never");
  return {.replacement = replacement,
          .prepend = none ? Metaspace::Prepend::never : *prepend,
          .split = part.boolean("split", true, Null::absent)};
}

ByteLevel read_byte_level(const Keys& part) {
  ByteLevel byte_level{.add_prefix_space = part.boolean("add_prefix_space"), .pattern = {}};
  if (part.boolean("use_regex", true, Null::absent)) byte_level.pattern.emplace_back(gpt2_pattern, part.source());
  return byte_level;
}

}  // namespace

void PreTokenizer::split(const Part& part, Words& words, Budget& budget) const {
  static_cast<Part&>(words) = part;
  words.spans.clear();
  if (part.text.empty()) return;
  words.spans.push_back({0, part.text.size()});
  for (const Step& step : steps) {
    budget.spend(words.text.size());
    std::visit([&](const auto& kind) { apply(kind, words, budget); }, step);
  }
}

PreTokenizer read_pre_tokenizer(const Keys& stage) {
  PreTokenizer made;
  for (const Keys& step : steps_of(stage, "pretokenizers")) {
    const std::string type = step.text("type");
    if (made.byte_level()) step.refuse("\"", type, "\" comes behind \"ByteLevel\", which must be the last");
    if (type == "Split") {
      made.steps.emplace_back(read_split(step));
    } else if (type == "Digits") {
      made.steps.emplace_back(Digits{step.boolean("individual_digits")});
    } else if (type == "Metaspace") {
      for (const PreTokenizer::Step& other : made.steps)
        if (std::holds_alternative<Metaspace>(other)) step.refuse("\"Metaspace\" stands twice, which is not supported");
      made.steps.emplace_back(read_metaspace(step));
    } else if (type == "ByteLevel") {
      made.steps.emplace_back(read_byte_level(step));
    } else {
      step.refuse("\"", type, "\" is not supported; there are Split, ByteLevel, Digits, Metaspace and Sequence");
    }
  }
  return made;
}

}  // namespace fsdp::text

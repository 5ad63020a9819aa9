// SPDX-License-Identifier: Apache-2.0
/// @file
/// Normalizers, and the reading of steps, patterns and characters that all stages share.
#include <optional>
#include <utility>

#include "../../fsdp/core/value_names.hpp"
#include "../unicode/code_points.hpp"
#include "stages.hpp"

namespace fsdp::text {
namespace {

constexpr std::size_t most_steps = 100;  // per Sequence: each step may compile an expression, and processes every text

}  // namespace

std::vector<Keys> steps_of(const Keys& stage, const char* key) {
  if (stage.text("type") != "Sequence") return {stage};
  std::vector<Keys> all;
  for (const nlohmann::json& entry : stage.array(key)) {
    for (Keys& step : steps_of(Keys(entry, stage.source(), stage.name()), key)) all.push_back(std::move(step));
    if (all.size() > most_steps) stage.refuse("has more than ", most_steps, " steps");
  }
  return all;
}

std::string character_at(const Keys& keys, const char* key) {
  const std::string one = keys.text(key);
  if (one.empty() || utf8_length(static_cast<unsigned char>(one[0])) != one.size())
    keys.refuse("has \"", key, "\" of \"", shortened(one), "\", which is not one character");
  return one;
}

PatternText read_pattern_text(const Keys& step) {
  const Keys pattern = step.object("pattern");
  for (const bool literal : {true, false}) {
    const char* const key = literal ? "String" : "Regex";
    if (!pattern.has(key)) continue;
    const PatternText text{.literal = literal, .text = pattern.text(key)};
    if (text.text.empty()) step.refuse("\"", step.text("type"), "\" has an empty pattern");
    return text;
  }
  step.refuse("\"", step.text("type"), "\" has a pattern that is neither {\"String\": ...} nor {\"Regex\": ...}");
}

bool Replace::append(std::string& out, std::string_view text, Budget& budget) const {
  budget.spend(text.size());
  bool found = false;
  std::size_t copied = 0;
  const auto replace = [&](std::size_t begin, std::size_t end) {
    budget.spend(content.size());
    out += text.substr(copied, begin - copied);
    out += content;
    copied = end;
    found = true;
  };
  if (pattern) {
    std::vector<Match> matches;
    pattern->find_all(text, matches, budget);
    for (const Match& match : matches) replace(match.begin, match.end);
  } else {
    budget.spend(search_steps(text, literal));
    for (std::size_t at = text.find(literal); at != text.npos; at = text.find(literal, copied))
      replace(at, at + literal.size());
  }
  out += text.substr(copied);
  return found;
}

std::size_t Replace::first_at_begin(std::string_view text, Budget& budget) const {
  if (!pattern) return text.starts_with(literal) ? literal.size() : 0;
  std::vector<Match> matches;
  pattern->find_all(text, matches, budget);
  return !matches.empty() && matches[0].begin == 0 ? matches[0].end : 0;
}

Part Normalizer::apply(Part part, std::string& buffer, Budget& budget) const {
  std::string next;
  for (const Step& step : steps) {
    if (part.text.empty()) return part;
    next.clear();
    if (const auto* form = std::get_if<UnicodeForm>(&step)) {
      if (is_ascii(part.text)) continue;
      append_normalized(next, part.text, *form);
      budget.spend(next.size());
    } else if (const auto* prepend = std::get_if<Prepend>(&step)) {
      if (part.follows) continue;
      budget.spend(prepend->content.size() + part.text.size());
      next.reserve(prepend->content.size() + part.text.size());
      next += prepend->content;
      next += part.text;
    } else {
      const auto& replace = std::get<Replace>(step);
      if (part.at_begin) {  // the replacement of several characters takes the offset of the last one
        const std::size_t replaced = replace.first_at_begin(part.text, budget);
        const bool one = replaced > 0 && replaced == utf8_length(static_cast<unsigned char>(part.text[0]));
        part.at_begin = replaced == 0 || (one && !replace.content.empty());
      }
      next.reserve(part.text.size() + part.text.size() / 4);
      if (!replace.append(next, part.text, budget)) continue;
    }
    std::swap(buffer, next);
    part.text = buffer;
  }
  return part;
}

Replace read_replace(const Keys& step) {
  PatternText pattern = read_pattern_text(step);
  Replace replace{.pattern = {}, .literal = {}, .content = step.text("content")};
  if (pattern.literal)
    replace.literal = std::move(pattern.text);
  else
    replace.pattern.emplace(pattern.text, step.source());
  return replace;
}

Normalizer read_normalizer(const Keys& stage) {
  constexpr ValueNames<UnicodeForm::nfkd> forms("NFC", "NFD", "NFKC", "NFKD");
  Normalizer normalizer;
  for (const Keys& step : steps_of(stage, "normalizers")) {
    const std::string type = step.text("type");
    if (const std::optional<UnicodeForm> form = forms.find(type))
      normalizer.steps.emplace_back(*form);
    else if (type == "Prepend")
      normalizer.steps.emplace_back(Prepend{step.text("prepend")});
    else if (type == "Replace")
      normalizer.steps.emplace_back(read_replace(step));
    else
      step.refuse("\"", type, "\" is not supported; there are NFC, NFD, NFKC, NFKD, Prepend, Replace and Sequence");
  }
  return normalizer;
}

}  // namespace fsdp::text

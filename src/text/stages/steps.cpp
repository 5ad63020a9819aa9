// SPDX-License-Identifier: Apache-2.0
#include "steps.hpp"

#include <utility>

#include "../unicode/code_points.hpp"

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

}  // namespace fsdp::text

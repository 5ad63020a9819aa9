// SPDX-License-Identifier: Apache-2.0
#include "json_part.hpp"

#include <utility>

#include "unicode/code_points.hpp"

namespace fsdp::text {
namespace {

constexpr std::size_t most_steps = 100;  // of a Sequence; each compiles an expression, and goes over every text

}  // namespace

JsonPart::JsonPart(const nlohmann::json& value, std::string name, const std::string& source)
    : value_(&value), name_(std::move(name)), source_(&source) {
  if (!value.is_object()) refuse("is not an object {...}");
}

const nlohmann::json& JsonPart::at(const char* key) const {
  if (!value_->contains(key)) refuse("lacks \"", key, "\"");
  return value_->at(key);
}

std::string JsonPart::character(const char* key) const {
  const std::string one = text(key);
  if (one.empty() || utf8_length(static_cast<unsigned char>(one[0])) != one.size())
    refuse("has \"", key, "\" of \"", shortened(one), "\", which is not one character");
  return one;
}

std::int64_t JsonPart::number(const char* key, std::int64_t most) const {
  const std::optional<std::int64_t> number = value_as<std::int64_t>(at(key));
  if (!number || *number > most)
    refuse("has \"", key, "\" of ", shortened(at(key).dump()), "; it must be a whole number of 0 to ", most);
  return *number;
}

const nlohmann::json& JsonPart::array(const char* key) const {
  if (!at(key).is_array()) refuse("has \"", key, "\" that is not a list [...]");
  return at(key);
}

std::vector<JsonPart> JsonPart::steps(const char* key) const {
  if (type() != "Sequence") return {*this};
  std::vector<JsonPart> all;
  for (const nlohmann::json& entry : array(key)) {
    for (JsonPart& step : JsonPart(entry, name_, *source_).steps(key)) all.push_back(std::move(step));
    if (all.size() > most_steps) refuse("has more than ", most_steps, " steps");
  }
  return all;
}

PatternText read_pattern_text(const JsonPart& part) {
  const JsonPart pattern = part.object("pattern");
  for (const bool literal : {true, false}) {
    const char* const key = literal ? "String" : "Regex";
    if (!pattern.has(key)) continue;
    const PatternText text{.literal = literal, .text = pattern.text(key)};
    if (text.text.empty()) part.refuse("\"", part.type(), "\" has an empty pattern");
    return text;
  }
  part.refuse("\"", part.type(), "\" has a pattern that is neither {\"String\": ...} nor {\"Regex\": ...}");
}

Replace read_replace(const JsonPart& part) {
  PatternText pattern = read_pattern_text(part);
  Replace replace{.pattern = {}, .literal = {}, .content = part.text("content")};
  if (pattern.literal) {
    replace.literal = std::move(pattern.text);
  } else {
    replace.pattern.emplace(pattern.text, part.source());
  }
  return replace;
}

}  // namespace fsdp::text

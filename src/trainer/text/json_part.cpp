// SPDX-License-Identifier: Apache-2.0
#include "json_part.hpp"

#include <utility>

#include "../../fsdp/checkpoint/strict_json.hpp"
#include "unicode/code_points.hpp"

namespace fsdp::text {
namespace {

constexpr std::size_t most_steps = 100;  // of a Sequence; each compiles an expression, and goes over every text

}  // namespace

JsonPart::JsonPart(const nlohmann::json& value, std::string name, const std::string& source)
    : value_(&value), name_(std::move(name)), source_(&source) {
  if (!value.is_object()) refuse("is not an object {...}");
}

bool JsonPart::has(const char* key) const { return value_->contains(key) && !value_->at(key).is_null(); }

const nlohmann::json& JsonPart::at(const char* key) const {
  if (!value_->contains(key)) refuse("lacks \"", key, "\"");
  return value_->at(key);
}

bool JsonPart::flag(const char* key) const {
  if (!at(key).is_boolean()) refuse("has \"", key, "\" that is neither true nor false");
  return at(key).get<bool>();
}

bool JsonPart::flag(const char* key, bool otherwise) const { return has(key) ? flag(key) : otherwise; }

std::string JsonPart::text(const char* key) const {
  if (!at(key).is_string()) refuse("has \"", key, "\" that is not a text");
  return at(key).get<std::string>();
}

std::string JsonPart::character(const char* key) const {
  const std::string one = text(key);
  if (one.empty() || utf8_length(static_cast<unsigned char>(one[0])) != one.size())
    refuse("has \"", key, "\" of \"", shortened(one), "\", which is not one character");
  return one;
}

std::int64_t JsonPart::number(const char* key, std::int64_t most) const {
  const nlohmann::json& value = at(key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(most))
    refuse("has \"", key, "\" of ", shortened(value.dump()), "; it must be a whole number of 0 to ", most);
  return value.get<std::int64_t>();
}

const nlohmann::json& JsonPart::array(const char* key) const {
  if (!at(key).is_array()) refuse("has \"", key, "\" that is not a list [...]");
  return at(key);
}

JsonPart JsonPart::object(const char* key) const { return JsonPart(at(key), name_ + "'s " + key, *source_); }

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

// SPDX-License-Identifier: Apache-2.0
#include "flag_set.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

#include <fsdp/core/error.hpp>
#include <fsdp/core/nearest.hpp>

namespace fsdp::cli {
namespace {

template <class T>
void parse_number(std::string_view flag, std::string_view text, T& value, const char* what) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  require<InputError>(whole, "--", flag, " '", text, "' is not ", what);
}

template <class T>
std::string print_number(T value) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end};
}

}  // namespace

void from_text(std::string_view flag, std::string_view text, std::int64_t& value) {
  parse_number(flag, text, value, "a whole number");
}
void from_text(std::string_view flag, std::string_view text, std::uint64_t& value) {
  parse_number(flag, text, value, "a whole number of at least 0");
}
void from_text(std::string_view flag, std::string_view text, double& value) {
  parse_number(flag, text, value, "a number");
  require<InputError>(std::isfinite(value), "--", flag, " '", text, "' is not a finite number");
}
void from_text(std::string_view flag, std::string_view text, bool& value) {
  require<InputError>(text == "true" || text == "false", "--", flag, " '", text, "' is neither true nor false");
  value = text == "true";
}
void from_text(std::string_view, std::string_view text, std::string& value) { value = text; }
void from_text(std::string_view flag, std::string_view text, train::LrShape& value) {
  const std::vector<std::string> names = {"constant", "cosine"};
  require<InputError>(text == names[0] || text == names[1], "--", flag, " ", text, " is not known; ",
                      suggestion(text, names));
  value = text == names[0] ? train::LrShape::constant : train::LrShape::cosine;
}
void from_text(std::string_view, std::string_view text, train::ShardingChoice& value) {
  const train::LayoutChoice layout = value.layout;  // a flag of its own
  value = train::parse_sharding(text);
  value.layout = layout;
}
void from_text(std::string_view, std::string_view text, train::LayoutChoice& value) {
  value = train::parse_layout(text);
}
void from_text(std::string_view, std::string_view text, train::PrecisionChoice& value) {
  value = train::parse_precision(text);
}
void from_text(std::string_view, std::string_view text, train::TilingChoice& value) {
  value = train::parse_tiling(text);
}
void from_text(std::string_view, std::string_view text, train::CommChoice& value) { value = train::parse_comm(text); }

std::string to_text(std::int64_t value) { return print_number(value); }
std::string to_text(std::uint64_t value) { return print_number(value); }
std::string to_text(double value) { return print_number(value); }
std::string to_text(bool value) { return value ? "true" : "false"; }
std::string to_text(const std::string& value) { return value; }
std::string to_text(train::LrShape value) { return value == train::LrShape::constant ? "constant" : "cosine"; }
std::string to_text(const train::ShardingChoice& value) { return name_of(value); }
std::string to_text(train::LayoutChoice value) { return name_of(value); }
std::string to_text(train::PrecisionChoice value) { return name_of(value); }
std::string to_text(const train::TilingChoice& value) { return name_of(value); }
std::string to_text(const train::CommChoice& value) { return name_of(value); }

const Flag* FlagSet::find(std::string_view name) const {
  for (const Flag& flag : flags_)
    if (flag.name == name) return &flag;
  return nullptr;
}

std::vector<std::string> FlagSet::names(std::string_view prefix) const {
  std::vector<std::string> names;
  for (const Flag& flag : flags_) names.push_back(std::string(prefix) + flag.name);
  return names;
}

const std::string& FlagSet::single(const std::string& name, const std::vector<std::string>& texts) {
  require<InputError>(texts.size() == 1, "--", name, " takes one value and got ", texts.size());
  return texts.front();
}

}  // namespace fsdp::cli

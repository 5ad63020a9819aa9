// SPDX-License-Identifier: Apache-2.0
/// @file
/// Filters (`value | filter`) of single values. Filters of lists are in list_filters.cpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

#include "builtins.hpp"
#include "strings.hpp"

namespace fsdp::text::jinja {
namespace {

template <std::string (*map)(std::string_view)>
Value text_filter(Runner&, const Value& of, Given arguments) {
  Bound("a change of case", arguments, {});
  return map(of.text());
}

/// Jinja's own title(): words begin after white space, hyphens and opening brackets.
std::string title_filter(std::string_view text) {
  std::string out;
  bool within = false;
  for (const std::string_view c : characters(text)) {
    out += within ? lower(c) : upper(c);
    within = !strip(c).empty() && std::string_view("-({[<").find(c) == std::string_view::npos;
  }
  return out;
}

Value trim(Runner&, const Value& of, Given arguments) {
  const std::optional<std::string> set = Bound("trim", arguments, {"chars"}).optional_text(0);
  const std::string text = of.text();
  return set ? strip(text, *set) : strip(text);
}

Value replace_filter(Runner&, const Value& of, Given arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  return replaced(of.text(), bound[0]->text(), bound[1]->text(), bound.integer(2, -1));
}

Value escape(Runner&, const Value& of, Given arguments) {
  Bound("escape", arguments, {});
  std::string out;
  for (const char c : of.text()) {
    out += c == '&'    ? "&amp;"
           : c == '<'  ? "&lt;"
           : c == '>'  ? "&gt;"
           : c == '\'' ? "&#39;"
           : c == '"'  ? "&#34;"
                       : std::string(1, c);
  }
  return out;
}

Value indent(Runner&, const Value& of, Given arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  const bool is_text = bound[0] != nullptr && bound[0]->as_text() != nullptr;
  const std::int64_t width = is_text ? 0 : bound.integer(0, 4);
  if (width > 1000) refuse("indent: 'width' is above 1000");
  const std::string space =
      is_text ? *bound[0]->as_text() : std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  const std::string text = of.text() + "\n";  // so that an empty last line counts
  std::string out;
  bool first = true;
  for (const std::string_view line : split_lines(text)) {
    if (!first) out += "\n";
    const bool indented = first ? bound.truth(1, false) : !line.empty() || bound.truth(2, false);
    require_short(out);
    if (indented) out += space;
    out += line;
    first = false;
  }
  return out;
}

Value default_filter(Runner&, const Value& of, Given arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  const bool keeps = !of.is_undefined() && (of.truth() || !bound.truth(1, false));
  return keeps ? of : bound[0] == nullptr ? Value("") : *bound[0];
}

/// Returns a whole number; nothing if the number is infinite, NaN or too large.
std::optional<std::int64_t> truncated(double value) {
  if (!(std::abs(value) < 9e18)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

Value int_filter(Runner&, const Value& of, Given arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  const Value otherwise = bound[0] == nullptr ? Value(std::int64_t{0}) : *bound[0];
  const std::int64_t base = bound.integer(1, 10);
  if (base < 2 || base > 36) refuse("int: the base ", base, " is not from 2 to 36");
  std::optional<std::int64_t> found;
  if (const std::string* text = of.as_text()) {
    const std::string_view bare = strip(*text);
    found = whole_number(bare, static_cast<int>(base));
    const std::optional<double> real = found ? std::nullopt : real_number(bare);
    if (real) found = truncated(*real);
  } else if (const double* real = of.get<double>()) {
    found = truncated(*real);
  } else if (of.is_number()) {
    found = of.integer("");
  }
  return found ? Value(*found) : otherwise;
}

Value float_filter(Runner&, const Value& of, Given arguments) {
  const Bound bound("float", arguments, {"default"});
  if (of.is_number()) return of.number("");
  const std::optional<double> real = of.as_text() == nullptr ? std::nullopt : real_number(strip(*of.as_text()));
  return real ? Value(*real) : bound[0] == nullptr ? Value(0.0) : *bound[0];
}

Value absolute(Runner&, const Value& of, Given arguments) {
  Bound("abs", arguments, {});
  if (const double* real = of.get<double>()) return std::abs(*real);
  const std::int64_t number = of.integer("abs");
  if (number == INT64_MIN) refuse("abs: a number of more than 63 bits");
  return number < 0 ? -number : number;
}

/// Python's round(): returns a whole number for a whole number, else the nearest number with `places` decimal digits.
Value rounded(const Value& of, int places) {
  if (of.get<double>() == nullptr && places >= 0) return of.integer("round");
  const double value = of.number("round");
  if (places < 0) {
    const double scale = std::pow(10.0, -places), result = std::nearbyint(value / scale) * scale;
    const std::optional<std::int64_t> whole = truncated(result);
    if (of.get<double>() == nullptr && !whole) refuse("round: a number of more than 63 bits");
    return of.get<double>() != nullptr ? Value(result) : Value(*whole);
  }
  constexpr double whole_from = 9007199254740992.0;  // 2^53: from here on, and for NaN, there are no decimals
  if (!(std::abs(value) < whole_from)) return value;
  spend(20 + static_cast<std::size_t>(places) / 4);
  std::array<char, 700> digits{};
  std::snprintf(digits.data(), digits.size(), "%.*f", places, value);
  return *real_number(digits.data());
}

Value round_filter(Runner&, const Value& of, Given arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  const std::string method = bound.text(1, "common");
  const std::int64_t places = std::clamp<std::int64_t>(bound.integer(0, 0), -18, 300);
  if (method == "common") return rounded(of, static_cast<int>(places));
  const double scale = std::pow(10.0, static_cast<double>(places));
  const double scaled = of.number("round") * scale;
  if (method == "ceil") return std::ceil(scaled) / scale;
  if (method == "floor") return std::floor(scaled) / scale;
  refuse("round: the method '", method, "' is not known");
}

Value json_filter(Runner&, const Value& of, Given arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.sort_keys = bound.truth(3, false), .ascii = bound.truth(0, false)};
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    style.indent = static_cast<int>(std::clamp<std::int64_t>(bound.integer(1, 0), 0, 100));
    style.item_separator = ",";
  }
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    const std::vector<Value> both = items_of(*bound[2]);
    if (both.size() != 2) refuse("tojson: 'separators' are two texts");
    style.item_separator = both[0].text_or_throw("tojson: 'separators'");
    style.key_separator = both[1].text_or_throw("tojson: 'separators'");
  }
  return to_json(of, style);
}

Value to_text(Runner&, const Value& of, Given arguments) {
  Bound("string", arguments, {});
  return of.text();
}

Value unchanged(Runner&, const Value& of, Given arguments) {
  Bound("safe", arguments, {});
  return of;
}

const std::map<std::string, FilterFunction, std::less<>>& filters() {
  static const std::map<std::string, FilterFunction, std::less<>> known = [] {
    std::map<std::string, FilterFunction, std::less<>> all = {
        {"abs", absolute},
        {"capitalize", text_filter<capitalize>},
        {"d", default_filter},
        {"default", default_filter},
        {"e", escape},
        {"escape", escape},
        {"float", float_filter},
        {"indent", indent},
        {"int", int_filter},
        {"lower", text_filter<lower>},
        {"replace", replace_filter},
        {"round", round_filter},
        {"safe", unchanged},
        {"string", to_text},
        {"title", text_filter<title_filter>},
        {"tojson", json_filter},
        {"trim", trim},
        {"upper", text_filter<upper>},
    };
    all.insert(list_filters().begin(), list_filters().end());
    return all;
  }();
  return known;
}

}  // namespace

bool is_filter(std::string_view name) { return filters().contains(name); }

Value apply_filter(Runner& runner, const std::string& name, const Value& of, const CallArguments& arguments) {
  const auto found = filters().find(name);
  if (found == filters().end()) refuse("the filter '", name, "' is not known");
  spend(1 + (of.as_text() == nullptr ? 0 : of.as_text()->size() / 16));
  return found->second(runner, of, arguments);
}

}  // namespace fsdp::text::jinja

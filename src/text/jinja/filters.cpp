// SPDX-License-Identifier: Apache-2.0
/// @file
/// Jinja's tests, such as `value is defined`, and its filters; those of lists are in list_filters.cpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

#include "builtins.hpp"
#include "strings.hpp"

namespace fsdp::text::jinja {
namespace {

struct TestKind {
  std::size_t arguments = 0;
  bool (*passes)(const Value& of, const Value* argument) = nullptr;
};

std::int64_t remainder_of(const Value& of, std::int64_t by) {
  const std::int64_t number = of.integer("what is tested");
  if (by == 0) refuse("divisibleby: division by zero");
  return by == -1 ? 0 : number % by;
}

bool is_iterable(const Value& v) {
  return v.is_undefined() || v.as_text() != nullptr || v.as_list() != nullptr || v.as_dict() != nullptr;
}

bool has_case_of(const Value& of, bool is_upper_case) {
  const std::string text = of.text();
  const std::string same = is_upper_case ? upper(text) : lower(text), other = is_upper_case ? lower(text) : upper(text);
  return text == same && text != other;
}

const std::map<std::string, TestKind, std::less<>>& tests() {
  using V = const Value&;
  using A = const Value*;
  static const std::map<std::string, TestKind, std::less<>> known = {
      {"boolean", {0, [](V v, A) { return v.get<bool>() != nullptr; }}},
      {"callable", {0, [](V v, A) { return v.as_function() != nullptr; }}},
      {"defined", {0, [](V v, A) { return !v.is_undefined(); }}},
      {"divisibleby", {1, [](V v, A a) { return remainder_of(v, a->integer("divisibleby")) == 0; }}},
      {"eq", {1, [](V v, A a) { return v == *a; }}},
      {"equalto", {1, [](V v, A a) { return v == *a; }}},
      {"==", {1, [](V v, A a) { return v == *a; }}},
      {"even", {0, [](V v, A) { return remainder_of(v, 2) == 0; }}},
      {"false", {0, [](V v, A) { return v.get<bool>() != nullptr && !*v.get<bool>(); }}},
      {"float", {0, [](V v, A) { return v.get<double>() != nullptr; }}},
      {"ge", {1, [](V v, A a) { return !is_less(v, *a); }}},
      {"gt", {1, [](V v, A a) { return is_less(*a, v); }}},
      {"greaterthan", {1, [](V v, A a) { return is_less(*a, v); }}},
      {"in", {1, [](V v, A a) { return contains(*a, v); }}},
      {"integer", {0, [](V v, A) { return v.get<std::int64_t>() != nullptr || v.get<BigInteger>() != nullptr; }}},
      {"iterable", {0, [](V v, A) { return is_iterable(v); }}},
      {"le", {1, [](V v, A a) { return !is_less(*a, v); }}},
      {"lessthan", {1, [](V v, A a) { return is_less(v, *a); }}},
      {"lower", {0, [](V v, A) { return has_case_of(v, false); }}},
      {"lt", {1, [](V v, A a) { return is_less(v, *a); }}},
      {"mapping", {0, [](V v, A) { return v.as_dict() != nullptr; }}},
      {"ne", {1, [](V v, A a) { return !(v == *a); }}},
      {"none", {0, [](V v, A) { return v.is_none(); }}},
      {"number", {0, [](V v, A) { return v.is_number(); }}},
      {"odd", {0, [](V v, A) { return remainder_of(v, 2) != 0; }}},
      {"sameas", {1, [](V v, A a) { return v.kinds().index() == a->kinds().index() && v == *a; }}},
      {"sequence", {0, [](V v, A) { return is_iterable(v); }}},
      {"string", {0, [](V v, A) { return v.as_text() != nullptr; }}},
      {"true", {0, [](V v, A) { return v.get<bool>() != nullptr && *v.get<bool>(); }}},
      {"undefined", {0, [](V v, A) { return v.is_undefined(); }}},
      {"upper", {0, [](V v, A) { return has_case_of(v, true); }}},
  };
  return known;
}

}  // namespace

bool is_test(std::string_view name) { return tests().contains(name); }

bool passes_test(const std::string& name, const Value& of, const CallArguments& arguments) {
  const auto found = tests().find(name);
  if (found == tests().end()) refuse("the test '", name, "' is not known");
  spend(1 + (of.as_text() == nullptr ? 0 : of.as_text()->size() / 16));
  if (arguments.positional.size() != found->second.arguments || !arguments.named.empty())
    refuse("the test '", name, "' takes ", found->second.arguments, " arguments");
  return found->second.passes(of, arguments.positional.empty() ? nullptr : &arguments.positional[0]);
}

namespace {

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

Value trim(Runner&, const Value& of, const Bound& given) {
  const std::optional<std::string> set = given.optional_text(0);
  const std::string text = of.text();
  return set ? strip(text, *set) : strip(text);
}

Value escape(Runner&, const Value& of, const Bound&) {
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

Value indent(Runner&, const Value& of, const Bound& given) {
  const bool is_text = given[0] != nullptr && given[0]->as_text() != nullptr;
  const std::int64_t width = is_text ? 0 : given.integer(0, 4);
  if (width > 1000) refuse("indent: 'width' is above 1000");
  const std::string space =
      is_text ? *given[0]->as_text() : std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  const std::string text = of.text() + "\n";  // so that an empty last line counts
  std::string out;
  bool first = true;
  for (const std::string_view line : split_lines(text)) {
    if (!first) out += "\n";
    const bool indented = first ? given.truth(1, false) : !line.empty() || given.truth(2, false);
    require_short(out);
    if (indented) out += space;
    out += line;
    first = false;
  }
  return out;
}

Value default_filter(Runner&, const Value& of, const Bound& given) {
  const bool keeps = !of.is_undefined() && (of.truth() || !given.truth(1, false));
  return keeps ? of : given[0] == nullptr ? Value("") : *given[0];
}

/// Returns the number truncated to an integer; nothing if it is infinite, NaN or too large.
std::optional<std::int64_t> truncated(double value) {
  if (!(std::abs(value) < 9e18)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

Value int_filter(Runner&, const Value& of, const Bound& given) {
  const Value otherwise = given[0] == nullptr ? Value(std::int64_t{0}) : *given[0];
  const std::int64_t base = given.integer(1, 10);
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

Value float_filter(Runner&, const Value& of, const Bound& given) {
  if (of.is_number()) return of.number("");
  const std::optional<double> real = of.as_text() == nullptr ? std::nullopt : real_number(strip(*of.as_text()));
  return real ? Value(*real) : given[0] == nullptr ? Value(0.0) : *given[0];
}

Value absolute(Runner&, const Value& of, const Bound&) {
  if (const double* real = of.get<double>()) return std::abs(*real);
  const std::int64_t number = of.integer("abs");
  if (number == INT64_MIN) refuse("abs: a number of more than 63 bits");
  return number < 0 ? -number : number;
}

/// Python's round(): returns an integer for an integer, else the nearest number with `places` decimal digits.
Value rounded(const Value& of, int places) {
  if (of.get<double>() == nullptr && places >= 0) return of.integer("round");
  const double value = of.number("round");
  if (places < 0) {
    const double scale = std::pow(10.0, -places), result = std::nearbyint(value / scale) * scale;
    const std::optional<std::int64_t> whole = truncated(result);
    if (of.get<double>() == nullptr && !whole) refuse("round: a number of more than 63 bits");
    return of.get<double>() != nullptr ? Value(result) : Value(*whole);
  }
  constexpr double whole_from = 9007199254740992.0;  // 2^53; larger numbers and NaN have no decimals
  if (!(std::abs(value) < whole_from)) return value;
  spend(20 + static_cast<std::size_t>(places) / 4);
  std::array<char, 700> digits{};
  std::snprintf(digits.data(), digits.size(), "%.*f", places, value);
  return *real_number(digits.data());
}

Value round_filter(Runner&, const Value& of, const Bound& given) {
  const std::string method = given.text(1, "common");
  const std::int64_t places = std::clamp<std::int64_t>(given.integer(0, 0), -18, 300);
  if (method == "common") return rounded(of, static_cast<int>(places));
  const double scale = std::pow(10.0, static_cast<double>(places));
  const double scaled = of.number("round") * scale;
  if (method == "ceil") return std::ceil(scaled) / scale;
  if (method == "floor") return std::floor(scaled) / scale;
  refuse("round: the method '", method, "' is not known");
}

Value json_filter(Runner&, const Value& of, const Bound& given) {
  JsonStyle style{.sort_keys = given.truth(3, false), .ascii = given.truth(0, false)};
  if (given[1] != nullptr && !given[1]->is_none()) {
    style.indent = static_cast<int>(std::clamp<std::int64_t>(given.integer(1, 0), 0, 100));
    style.item_separator = ",";
  }
  if (given[2] != nullptr && !given[2]->is_none()) {
    const std::vector<Value> both = items_of(*given[2]);
    if (both.size() != 2) refuse("tojson: 'separators' are two texts");
    style.item_separator = both[0].text_or_throw("tojson: 'separators'");
    style.key_separator = both[1].text_or_throw("tojson: 'separators'");
  }
  return to_json(of, style);
}

const Builtins& filters() {
  using V = const Value&;
  using B = const Bound&;
  static const Builtins known = [] {
    constexpr std::string_view change = "a change of case";
    const Builtin or_default = {"default", {"default_value", "boolean"}, 0, default_filter};
    const Builtin escaped = {"escape", {}, 0, escape};
    Builtins all = {
        {"abs", {"abs", {}, 0, absolute}},
        {"capitalize", {change, {}, 0, [](Runner&, V of, B) -> Value { return capitalize(of.text()); }}},
        {"d", or_default},
        {"default", or_default},
        {"e", escaped},
        {"escape", escaped},
        {"float", {"float", {"default"}, 0, float_filter}},
        {"indent", {"indent", {"width", "first", "blank"}, 0, indent}},
        {"int", {"int", {"default", "base"}, 0, int_filter}},
        {"lower", {change, {}, 0, [](Runner&, V of, B) -> Value { return lower(of.text()); }}},
        {"replace",
         {"replace",
          {"old", "new", "count"},
          2,
          [](Runner&, V of, B b) -> Value {
            return replaced(of.text(), b[0]->text(), b[1]->text(), b.integer(2, -1));
          }}},
        {"round", {"round", {"precision", "method"}, 0, round_filter}},
        {"safe", {"safe", {}, 0, [](Runner&, V of, B) { return of; }}},
        {"string", {"string", {}, 0, [](Runner&, V of, B) -> Value { return of.text(); }}},
        {"title", {change, {}, 0, [](Runner&, V of, B) -> Value { return title_filter(of.text()); }}},
        {"tojson", {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, json_filter}},
        {"trim", {"trim", {"chars"}, 0, trim}},
        {"upper", {change, {}, 0, [](Runner&, V of, B) -> Value { return upper(of.text()); }}},
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
  return found->second.call(runner, of, arguments);
}

}  // namespace fsdp::text::jinja

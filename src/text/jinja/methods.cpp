// SPDX-License-Identifier: Apache-2.0
/// @file
/// Python's methods of texts, lists and dicts that do not modify them.
#include <algorithm>

#include "../unicode/code_points.hpp"
#include "builtins.hpp"
#include "strings.hpp"

namespace fsdp::text::jinja {
namespace {

using V = const Value&;
using B = const Bound&;

template <class Parts>
Value list_of(const Parts& parts) {
  std::vector<Value> items;
  for (const auto& part : parts) items.emplace_back(part);
  return Value::list(std::move(items));
}

template <bool (*is)(char32_t)>
Value all_are(Runner&, const Value& of, const Bound&) {
  const std::string& text = *of.as_text();
  bool all = !text.empty();
  for (std::size_t at = 0; all && at < text.size();) all = is(next_code_point(text, at));
  return all;
}

bool is_alphanumeric(char32_t code) { return is_alphabetic(code) || is_decimal_digit(code); }

/// Returns whether there are cased characters and all of them have this case.
template <bool (*is)(char32_t), bool (*is_other)(char32_t)>
Value has_case(Runner&, const Value& of, const Bound&) {
  const std::string& text = *of.as_text();
  bool some = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t code = next_code_point(text, at);
    if (is_other(code)) return false;
    some = some || is(code);
  }
  return some;
}

template <std::string (*map)(std::string_view)>
Value mapped_text(Runner&, const Value& of, const Bound&) {
  return map(*of.as_text());
}

template <std::string_view (*take)(std::string_view, std::optional<std::string_view>)>
Value stripped(Runner&, const Value& of, const Bound& given) {
  const std::optional<std::string> set = given.optional_text(0);
  return set ? take(*of.as_text(), *set) : take(*of.as_text(), std::nullopt);
}

template <auto cut>
Value parts_of(Runner&, const Value& of, const Bound& given) {
  const std::optional<std::string> separator = given.optional_text(0);
  const auto at = separator ? std::optional<std::string_view>(*separator) : std::nullopt;
  return list_of(cut(*of.as_text(), at, given.integer(1, -1)));
}

/// Implements startswith and endswith, which also take a tuple of texts.
template <bool starts>
Value begins_or_ends(Runner&, const Value& of, const Bound& given) {
  const std::string& text = *of.as_text();
  const auto holds = [&](const Value& affix) {
    const std::string& part = affix.text_or_throw(starts ? "startswith: 'of'" : "endswith: 'of'");
    spend(1 + part.size() / 64);
    return starts ? text.starts_with(part) : text.ends_with(part);
  };
  const List* several = given[0]->as_list();
  if (several == nullptr) return holds(*given[0]);
  return std::any_of(several->items.begin(), several->items.end(), holds);
}

template <bool from_right, bool must>
Value place_of(Runner&, const Value& of, const Bound& given) {
  const std::string& text = *of.as_text();
  const std::string part = given.text(0, "");
  spend_search(text, part);
  const std::size_t found = from_right ? text.rfind(part) : text.find(part);
  if (found == text.npos && must) refuse("index: the text does not hold '", part, "'");
  return found == text.npos ? -1 : length_of(std::string_view(text).substr(0, found));
}

Value count_in(Runner&, const Value& of, const Bound& given) {
  const std::string& text = *of.as_text();
  const std::string part = given.text(0, "");
  if (part.empty()) return length_of(text) + 1;
  return static_cast<std::int64_t>(split(text, part).size()) - 1;
}

Value join(Runner&, const Value& of, const Bound& given) {
  return joined(*given[0], *of.as_text(),
                [](const Value& item) -> const std::string& { return item.text_or_throw("an item of join"); });
}

template <bool prefix>
Value without_affix(Runner&, const Value& of, const Bound& given) {
  const std::string& text = *of.as_text();
  const std::string part = given.text(0, "");
  if (prefix) return text.starts_with(part) ? text.substr(part.size()) : text;
  return text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text;
}

/// Implements partition and rpartition.
template <bool from_right>
Value partition(Runner&, const Value& of, const Bound& given) {
  const std::string& text = *of.as_text();
  const std::string separator = given.text(0, "");
  if (separator.empty()) refuse("partition: the separator is empty");
  spend_search(text, separator);
  const std::size_t found = from_right ? text.rfind(separator) : text.find(separator);
  if (found == text.npos) return from_right ? Value::list({"", "", text}, true) : Value::list({text, "", ""}, true);
  return Value::list({text.substr(0, found), separator, text.substr(found + separator.size())}, true);
}

/// Implements format: supports "{}", "{0}" and "{name}", and refuses format specifications.
Value format(Runner&, const Value& of, const Bound& given) {
  const std::string& text = *of.as_text();
  const CallArguments& arguments = given.all();
  std::string out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c != '{' && c != '}') {
      out += c;
    } else if (i + 1 < text.size() && text[i + 1] == c) {
      out += c;
      ++i;
    } else {
      const std::size_t end = text.find('}', i);
      if (c == '}' || end == text.npos) refuse("format: a brace stands alone");
      const std::string field = text.substr(i + 1, end - i - 1);
      const std::optional<std::int64_t> number = whole_number(field);
      spend(1 + arguments.named.size() / 8);
      const auto named =
          std::find_if(arguments.named.begin(), arguments.named.end(), [&](const auto& a) { return a.first == field; });
      const std::size_t place = number ? static_cast<std::size_t>(*number) : next;
      const bool by_place = field.empty() || number;
      if (by_place ? place >= arguments.positional.size() : named == arguments.named.end())
        refuse("format: '{", field, "}' is not known");
      if (field.empty()) ++next;
      require_short(out);
      out += (by_place ? arguments.positional[place] : named->second).text();
      i = end;
    }
  }
  return out;
}

const Builtins& text_methods() {
  constexpr std::string_view change = "a change of case", characters = "a test of characters", cases = "a test of case";
  static const Builtins methods = {
      {"capitalize", {change, {}, 0, mapped_text<capitalize>}},
      {"count", {"count", {"sub"}, 1, count_in}},
      {"endswith", {"endswith", {"of"}, 1, begins_or_ends<false>}},
      {"find", {"find", {"sub"}, 1, place_of<false, false>}},
      {"format", {"format", {}, Bound::any, format}},
      {"index", {"find", {"sub"}, 1, place_of<false, true>}},
      {"isalnum", {characters, {}, 0, all_are<is_alphanumeric>}},
      {"isalpha", {characters, {}, 0, all_are<is_alphabetic>}},
      {"isdecimal", {characters, {}, 0, all_are<is_decimal_digit>}},
      {"isdigit", {characters, {}, 0, all_are<is_decimal_digit>}},
      {"islower", {cases, {}, 0, has_case<is_lower, is_upper>}},
      {"isspace", {characters, {}, 0, all_are<is_space>}},
      {"isupper", {cases, {}, 0, has_case<is_upper, is_lower>}},
      {"join", {"join", {"items"}, 1, join}},
      {"lower", {change, {}, 0, mapped_text<lower>}},
      {"lstrip", {"strip", {"chars"}, 0, stripped<strip_left>}},
      {"partition", {"partition", {"sep"}, 1, partition<false>}},
      {"removeprefix", {"removeprefix", {"affix"}, 1, without_affix<true>}},
      {"removesuffix", {"removesuffix", {"affix"}, 1, without_affix<false>}},
      {"replace",
       {"replace",
        {"old", "new", "count"},
        2,
        [](Runner&, V of, B b) -> Value {
          return replaced(*of.as_text(), b.text(0, ""), b.text(1, ""), b.integer(2, -1));
        }}},
      {"rfind", {"find", {"sub"}, 1, place_of<true, false>}},
      {"rindex", {"find", {"sub"}, 1, place_of<true, true>}},
      {"rpartition", {"partition", {"sep"}, 1, partition<true>}},
      {"rsplit", {"split", {"sep", "maxsplit"}, 0, parts_of<split_right>}},
      {"rstrip", {"strip", {"chars"}, 0, stripped<strip_right>}},
      {"split", {"split", {"sep", "maxsplit"}, 0, parts_of<split>}},
      {"splitlines",
       {"splitlines",
        {"keepends"},
        0,
        [](Runner&, V of, B b) { return list_of(split_lines(*of.as_text(), b.truth(0, false))); }}},
      {"startswith", {"startswith", {"of"}, 1, begins_or_ends<true>}},
      {"strip", {"strip", {"chars"}, 0, stripped<strip>}},
      {"title", {change, {}, 0, mapped_text<title>}},
      {"upper", {change, {}, 0, mapped_text<upper>}},
  };
  return methods;
}

Value index_of(Runner&, const Value& of, const Bound& given) {
  const std::vector<Value>& items = of.as_list()->items;
  const auto found = std::ranges::find(items, *given[0]);
  if (found == items.end()) refuse("index: the list does not hold it");
  return static_cast<std::int64_t>(found - items.begin());
}

Value get(Runner&, const Value& of, const Bound& given) {
  if (const Value* found = of.as_dict()->find(*given[0])) return *found;
  return given[1] == nullptr ? Value::none() : *given[1];
}

enum class DictView { keys, values, items };

template <DictView view>
Value all_of(Runner&, const Value& of, const Bound&) {
  std::vector<Value> items;
  for (const auto& [key, value] : of.as_dict()->items)
    items.push_back(view == DictView::keys ? key : view == DictView::values ? value : Value::list({key, value}, true));
  return Value::list(std::move(items));
}

const Builtins& methods_of(const Value& value) {
  static const Builtins none;
  static const Builtins of_lists = {
      {"count",
       {"count",
        {"value"},
        1,
        [](Runner&, V of, B b) -> Value { return std::ranges::count(of.as_list()->items, *b[0]); }}},
      {"index", {"index", {"value"}, 1, index_of}}};
  static const Builtins of_dicts = {{"get", {"get", {"key", "default"}, 1, get}},
                                    {"items", {"items", {}, 0, all_of<DictView::items>}},
                                    {"keys", {"keys", {}, 0, all_of<DictView::keys>}},
                                    {"values", {"values", {}, 0, all_of<DictView::values>}}};
  if (value.as_text() != nullptr) return text_methods();
  if (value.as_list() != nullptr) return of_lists;
  return value.as_dict() != nullptr ? of_dicts : none;
}

}  // namespace

std::optional<Value> method_of(const Value& of, const std::string& name) {
  const Builtins& methods = methods_of(of);
  const auto found = methods.find(name);
  if (found == methods.end()) return std::nullopt;
  Function method{name, [of, &builtin = found->second](Runner& runner, Given arguments) {
                    if (const std::string* text = of.as_text()) spend(text->size() / 16);
                    return builtin.call(runner, of, arguments);
                  }};
  method.extent.add(of);
  return Value(std::make_shared<const Function>(std::move(method)));
}

}  // namespace fsdp::text::jinja

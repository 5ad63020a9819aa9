// SPDX-License-Identifier: Apache-2.0
/// @file
/// Python's methods of texts, lists and dicts that do not modify them.
#include <algorithm>
#include <map>

#include "../unicode/code_points.hpp"
#include "builtins.hpp"
#include "strings.hpp"

namespace fsdp::text::jinja {
namespace {

template <class Parts>
Value list_of(const Parts& parts) {
  std::vector<Value> items;
  for (const auto& part : parts) items.emplace_back(part);
  return Value::list(std::move(items));
}

using TextMethod = Value (*)(const std::string& text, const CallArguments& arguments);

template <bool (*is)(char32_t)>
Value all_are(const std::string& text, Given arguments) {
  Bound("a test of characters", arguments, {});
  bool all = !text.empty();
  for (std::size_t at = 0; all && at < text.size();) all = is(next_code_point(text, at));
  return all;
}

bool is_alphanumeric(char32_t code) { return is_alphabetic(code) || is_decimal_digit(code); }

/// Returns whether there are cased characters and all of them have this case.
template <bool (*is)(char32_t), bool (*is_other)(char32_t)>
Value has_case(const std::string& text, Given arguments) {
  Bound("a test of case", arguments, {});
  bool some = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t code = next_code_point(text, at);
    if (is_other(code)) return false;
    some = some || is(code);
  }
  return some;
}

template <std::string (*map)(std::string_view)>
Value mapped_text(const std::string& text, Given arguments) {
  Bound("a change of case", arguments, {});
  return map(text);
}

template <std::string_view (*take)(std::string_view, std::optional<std::string_view>)>
Value stripped(const std::string& text, Given arguments) {
  const std::optional<std::string> of = Bound("strip", arguments, {"chars"}).optional_text(0);
  return of ? take(text, *of) : take(text, std::nullopt);
}

template <auto cut>
Value parts_of(const std::string& text, Given arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  const std::optional<std::string> separator = bound.optional_text(0);
  const auto at = separator ? std::optional<std::string_view>(*separator) : std::nullopt;
  return list_of(cut(text, at, bound.integer(1, -1)));
}

Value lines_of(const std::string& text, Given arguments) {
  return list_of(split_lines(text, Bound("splitlines", arguments, {"keepends"}).truth(0, false)));
}

/// Implements startswith and endswith, which also take a tuple of texts.
template <bool starts>
Value begins_or_ends(const std::string& text, Given arguments) {
  const Bound bound(starts ? "startswith" : "endswith", arguments, {"of"}, 1);
  const auto holds = [&](const Value& of) {
    const std::string& part = of.text_or_throw(starts ? "startswith: 'of'" : "endswith: 'of'");
    spend(1 + part.size() / 64);
    return starts ? text.starts_with(part) : text.ends_with(part);
  };
  const List* several = bound[0]->as_list();
  if (several == nullptr) return holds(*bound[0]);
  return std::any_of(several->items.begin(), several->items.end(), holds);
}

Value replace(const std::string& text, Given arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  return replaced(text, bound.text(0, ""), bound.text(1, ""), bound.integer(2, -1));
}

template <bool from_right, bool must>
Value place_of(const std::string& text, Given arguments) {
  const std::string part = Bound("find", arguments, {"sub"}, 1).text(0, "");
  spend_search(text, part);
  const std::size_t found = from_right ? text.rfind(part) : text.find(part);
  if (found == text.npos && must) refuse("index: the text does not hold '", part, "'");
  return found == text.npos ? -1 : length_of(std::string_view(text).substr(0, found));
}

Value count_in(const std::string& text, Given arguments) {
  const std::string part = Bound("count", arguments, {"sub"}, 1).text(0, "");
  if (part.empty()) return length_of(text) + 1;
  return static_cast<std::int64_t>(split(text, part).size()) - 1;
}

Value join(const std::string& text, Given arguments) {
  const Bound bound("join", arguments, {"items"}, 1);
  std::string out;
  bool first = true;
  for (const Value& item : items_of(*bound[0])) {
    if (!first) out += text;
    first = false;
    require_short(out);
    out += item.text_or_throw("an item of join");
  }
  return out;
}

template <bool prefix>
Value without_affix(const std::string& text, Given arguments) {
  const std::string part = Bound(prefix ? "removeprefix" : "removesuffix", arguments, {"affix"}, 1).text(0, "");
  if (prefix) return text.starts_with(part) ? text.substr(part.size()) : text;
  return text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text;
}

/// Implements partition and rpartition.
template <bool from_right>
Value partition(const std::string& text, Given arguments) {
  const std::string separator = Bound("partition", arguments, {"sep"}, 1).text(0, "");
  if (separator.empty()) refuse("partition: the separator is empty");
  spend_search(text, separator);
  const std::size_t found = from_right ? text.rfind(separator) : text.find(separator);
  if (found == text.npos) {
    return from_right ? Value::list({"", "", text}, true) : Value::list({text, "", ""}, true);
  }
  return Value::list({text.substr(0, found), separator, text.substr(found + separator.size())}, true);
}

/// Implements format: supports "{}", "{0}" and "{name}", and refuses format specifications.
Value format(const std::string& text, Given arguments) {
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
      if (by_place ? place >= arguments.positional.size() : named == arguments.named.end()) {
        refuse("format: '{", field, "}' is not known");
      }
      if (field.empty()) ++next;
      require_short(out);
      out += (by_place ? arguments.positional[place] : named->second).text();
      i = end;
    }
  }
  return out;
}

const std::map<std::string, TextMethod, std::less<>>& text_methods() {
  static const std::map<std::string, TextMethod, std::less<>> methods = {
      {"capitalize", mapped_text<capitalize>},
      {"count", count_in},
      {"endswith", begins_or_ends<false>},
      {"find", place_of<false, false>},
      {"format", format},
      {"index", place_of<false, true>},
      {"isalnum", all_are<is_alphanumeric>},
      {"isalpha", all_are<is_alphabetic>},
      {"isdecimal", all_are<is_decimal_digit>},
      {"isdigit", all_are<is_decimal_digit>},
      {"islower", has_case<is_lower, is_upper>},
      {"isspace", all_are<is_space>},
      {"isupper", has_case<is_upper, is_lower>},
      {"join", join},
      {"lower", mapped_text<lower>},
      {"lstrip", stripped<strip_left>},
      {"partition", partition<false>},
      {"removeprefix", without_affix<true>},
      {"removesuffix", without_affix<false>},
      {"replace", replace},
      {"rfind", place_of<true, false>},
      {"rindex", place_of<true, true>},
      {"rpartition", partition<true>},
      {"rsplit", parts_of<split_right>},
      {"rstrip", stripped<strip_right>},
      {"split", parts_of<split>},
      {"splitlines", lines_of},
      {"startswith", begins_or_ends<true>},
      {"strip", stripped<strip>},
      {"title", mapped_text<title>},
      {"upper", mapped_text<upper>},
  };
  return methods;
}

Value call_list_method(const List& list, const std::string& name, Given arguments) {
  const Bound bound(name, arguments, {"value"}, 1);
  if (name == "count") return static_cast<std::int64_t>(std::count(list.items.begin(), list.items.end(), *bound[0]));
  const auto found = std::find(list.items.begin(), list.items.end(), *bound[0]);
  if (found == list.items.end()) refuse("index: the list does not hold it");
  return static_cast<std::int64_t>(found - list.items.begin());
}

Value call_dict_method(const Dict& dict, const std::string& name, Given arguments) {
  if (name == "get") {
    const Bound bound("get", arguments, {"key", "default"}, 1);
    if (const Value* found = dict.find(*bound[0])) return *found;
    return bound[1] == nullptr ? Value::none() : *bound[1];
  }
  Bound(name, arguments, {});
  std::vector<Value> items;
  for (const auto& [key, value] : dict.items) {
    items.push_back(name == "keys" ? key : name == "values" ? value : Value::list({key, value}, true));
  }
  return Value::list(std::move(items));
}

}  // namespace

std::optional<Value> method_of(const Value& of, const std::string& name) {
  std::function<Value(Runner&, Given)> call;
  if (of.as_text() != nullptr) {
    const auto found = text_methods().find(name);
    if (found == text_methods().end()) return std::nullopt;
    call = [of, method = found->second](Runner&, Given arguments) {
      spend(of.as_text()->size() / 16);
      return method(*of.as_text(), arguments);
    };
  } else if (of.as_list() != nullptr) {
    if (name != "count" && name != "index") return std::nullopt;
    call = [of, name](Runner&, Given arguments) { return call_list_method(*of.as_list(), name, arguments); };
  } else if (of.as_dict() != nullptr) {
    if (name != "get" && name != "items" && name != "keys" && name != "values") return std::nullopt;
    call = [of, name](Runner&, Given arguments) { return call_dict_method(*of.as_dict(), name, arguments); };
  } else {
    return std::nullopt;
  }
  Function method{name, std::move(call)};
  method.extent.add(of);
  return Value(std::make_shared<const Function>(std::move(method)));
}

}  // namespace fsdp::text::jinja

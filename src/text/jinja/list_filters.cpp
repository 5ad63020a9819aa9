// SPDX-License-Identifier: Apache-2.0
/// @file
/// Filters of lists.
#include <algorithm>
#include <array>

#include "builtins.hpp"
#include "strings.hpp"

namespace fsdp::text::jinja {
namespace {

constexpr std::size_t most_arguments = 20;  // for a filter that map calls; bounds the recursion of map in map

Value length(Runner&, const Value& of, const Bound&) {
  if (of.as_text() != nullptr) return length_of(*of.as_text());
  if (of.as_list() != nullptr) return static_cast<std::int64_t>(of.as_list()->items.size());
  if (of.as_dict() != nullptr) return static_cast<std::int64_t>(of.as_dict()->items.size());
  if (!of.is_undefined()) refuse("length: ", of.kind_name(), " has none");
  return std::int64_t{0};
}

/// Returns the part of an item at the path or key `attribute`; the item itself if `attribute` is absent or none.
Value part_of(const Value& item, const Value* attribute) {
  if (attribute == nullptr || attribute->is_none()) return item;
  return attribute->as_text() != nullptr ? value_at(item, *attribute->as_text()) : item_of(item, *attribute);
}

/// Returns the key to compare a value by: a text is in lower case unless `case_sensitive`.
Value folded(const Value& value, bool case_sensitive) {
  return case_sensitive || value.as_text() == nullptr ? value : Value(lower(*value.as_text()));
}

Value join_filter(Runner&, const Value& of, const Bound& given) {
  const std::string between = given[0] == nullptr ? "" : given[0]->text();
  return joined(of, between, [&](const Value& item) { return part_of(item, given[1]).text(); });
}

template <bool from_end>
Value end_item(Runner&, const Value& of, const Bound&) {
  const std::vector<Value> items = items_of(of);
  if (items.empty()) return Undefined{"an item of nothing"};
  return from_end ? items.back() : items.front();
}

Value items_filter(Runner&, const Value& of, const Bound&) {
  if (of.is_undefined()) return Value::list({});
  if (of.as_dict() == nullptr) refuse("items: ", of.kind_name(), " is no dict");
  std::vector<Value> items;
  for (const auto& [key, value] : of.as_dict()->items) items.push_back(Value::list({key, value}, true));
  return Value::list(std::move(items));
}

Value reverse(Runner&, const Value& of, const Bound&) {
  std::vector<Value> items = items_of(of);
  std::reverse(items.begin(), items.end());
  if (of.as_text() == nullptr) return Value::list(std::move(items));
  std::string out;
  for (const Value& item : items) out += *item.as_text();
  return out;
}

/// Sorts by a key, in descending order if `reversed`. Stable, as in Python.
std::vector<Value> sorted_by(std::vector<Value> items, bool reversed, const std::function<Value(const Value&)>& key) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : items) keyed.emplace_back(key(item), std::move(item));
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reversed ? is_less(b.first, a.first) : is_less(a.first, b.first);
  });
  items.clear();
  for (auto& [ignored, item] : keyed) items.push_back(std::move(item));
  return items;
}

Value sort(Runner&, const Value& of, const Bound& given) {
  return Value::list(sorted_by(items_of(of), given.truth(0, false), [&](const Value& item) {
    return folded(part_of(item, given[2]), given.truth(1, false));
  }));
}

Value sort_dict(Runner& runner, const Value& of, const Bound& given) {
  const std::string by = given.text(1, "key");
  if (by != "key" && by != "value") refuse("dictsort: 'by' is 'key' or 'value'");
  return Value::list(sorted_by(
      items_of(items_filter(runner, of, given)), given.truth(2, false),
      [&](const Value& item) { return folded(item.as_list()->items[by == "key" ? 0 : 1], given.truth(0, false)); }));
}

Value unique(Runner&, const Value& of, const Bound& given) {
  std::vector<Value> seen, items;
  for (const Value& item : items_of(of)) {
    const Value key = folded(part_of(item, given[1]), given.truth(0, false));
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) continue;
    seen.push_back(key);
    items.push_back(item);
  }
  return Value::list(std::move(items));
}

template <bool largest>
Value extreme(Runner&, const Value& of, const Bound& given) {
  const std::vector<Value> items = items_of(of);
  if (items.empty()) return Undefined{"an item of nothing"};
  const auto key = [&](const Value& item) { return folded(part_of(item, given[1]), given.truth(0, false)); };
  const Value* found = &items[0];
  for (const Value& item : items)
    if (largest ? is_less(key(*found), key(item)) : is_less(key(item), key(*found))) found = &item;
  return *found;
}

Value sum(Runner&, const Value& of, const Bound& given) {
  Value total = given[1] == nullptr ? Value(std::int64_t{0}) : *given[1];
  for (const Value& item : items_of(of)) {
    const Value part = part_of(item, given[0]);
    std::int64_t whole = 0;
    if (total.get<double>() != nullptr || part.get<double>() != nullptr) {
      total = total.number("sum: 'start'") + part.number("an item of sum");
    } else {
      if (__builtin_add_overflow(total.integer("sum: 'start'"), part.integer("an item of sum"), &whole))
        refuse("sum: a number of more than 63 bits");
      total = whole;
    }
  }
  return total;
}

/// Returns the positional arguments from index `from` on, after those that specify a filter or a test.
CallArguments rest_of(const CallArguments& arguments, std::size_t from) {
  CallArguments rest{.positional = {}, .named = arguments.named};
  for (std::size_t i = from; i < arguments.positional.size(); ++i) rest.positional.push_back(arguments.positional[i]);
  return rest;
}

/// Implements map('filter', ...) and map(attribute='name', default=...).
Value map(Runner& runner, const Value& of, const Bound& given) {
  static constexpr std::array<std::string_view, 2> names = {"attribute", "default"};
  const CallArguments& arguments = given.all();
  std::vector<Value> items;
  if (arguments.positional.empty()) {
    const Bound bound("map", arguments, names, 1);
    for (const Value& item : items_of(of)) {
      const Value part = part_of(item, bound[0]);
      items.push_back(part.is_undefined() && bound[1] != nullptr ? *bound[1] : part);
    }
    return Value::list(std::move(items));
  }
  const std::string& name = arguments.positional[0].text_or_throw("map: the filter's name");
  if (arguments.positional.size() > most_arguments) refuse("map: has more than ", most_arguments, " arguments");
  const CallArguments rest = rest_of(arguments, 1);
  for (const Value& item : items_of(of)) items.push_back(apply_filter(runner, name, item, rest));
  return Value::list(std::move(items));
}

/// Implements select, reject, selectattr and rejectattr: by a test, or by truth.
template <bool wanted, bool by_attribute>
Value choose(Runner&, const Value& of, const Bound& given) {
  const CallArguments& arguments = given.all();
  const std::size_t first = by_attribute ? 1 : 0;
  if (arguments.positional.size() < first) refuse("selectattr: lacks the attribute's name");
  const Value* attribute = by_attribute ? &arguments.positional[0] : nullptr;
  const bool tests = arguments.positional.size() > first;
  const std::string name = tests ? arguments.positional[first].text_or_throw("a test's name") : "";
  const CallArguments rest = tests ? rest_of(arguments, first + 1) : CallArguments{};
  std::vector<Value> items;
  for (const Value& item : items_of(of)) {
    const Value part = part_of(item, attribute);
    if ((tests ? passes_test(name, part, rest) : part.truth()) == wanted) items.push_back(item);
  }
  return Value::list(std::move(items));
}

}  // namespace

const Builtins& list_filters() {
  static const Builtins filters = {
      {"count", {"length", {}, 0, length}},
      {"dictsort", {"dictsort", {"case_sensitive", "by", "reverse"}, 0, sort_dict}},
      {"first", {"first", {}, 0, end_item<false>}},
      {"items", {"items", {}, 0, items_filter}},
      {"join", {"join", {"d", "attribute"}, 0, join_filter}},
      {"last", {"first", {}, 0, end_item<true>}},
      {"length", {"length", {}, 0, length}},
      {"list", {"list", {}, 0, [](Runner&, const Value& of, const Bound&) { return Value::list(items_of(of)); }}},
      {"map", {"map", {}, Bound::any, map}},
      {"max", {"min", {"case_sensitive", "attribute"}, 0, extreme<true>}},
      {"min", {"min", {"case_sensitive", "attribute"}, 0, extreme<false>}},
      {"reject", {"reject", {}, Bound::any, choose<false, false>}},
      {"rejectattr", {"rejectattr", {}, Bound::any, choose<false, true>}},
      {"reverse", {"reverse", {}, 0, reverse}},
      {"select", {"select", {}, Bound::any, choose<true, false>}},
      {"selectattr", {"selectattr", {}, Bound::any, choose<true, true>}},
      {"sort", {"sort", {"reverse", "case_sensitive", "attribute"}, 0, sort}},
      {"sum", {"sum", {"attribute", "start"}, 0, sum}},
      {"unique", {"unique", {"case_sensitive", "attribute"}, 0, unique}},
  };
  return filters;
}

}  // namespace fsdp::text::jinja

// SPDX-License-Identifier: Apache-2.0
#include "value.hpp"

#include <algorithm>
#include <compare>
#include <optional>

#include "../unicode/code_points.hpp"

namespace fsdp::text::jinja {
namespace {

bool same_members(const Dict& a, const Dict& b) {
  return a.items.size() == b.items.size() && std::all_of(a.items.begin(), a.items.end(), [&](const auto& item) {
           const Value* other = b.find(item.first);
           return other != nullptr && *other == item.second;
         });
}

/// Returns the value as an integer if it is one, so that large integers are compared exactly.
const std::int64_t* whole(const Value& value, std::int64_t& room) {
  if (const bool* truth = value.get<bool>()) {
    room = *truth ? 1 : 0;
    return &room;
  }
  return value.get<std::int64_t>();
}

/// Returns a < b for integers in decimal digits.
bool is_less_digits(std::string_view a, std::string_view b) {
  const bool negative = a.starts_with('-');
  if (negative != b.starts_with('-')) return negative;
  if (negative) std::swap(a, b);
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

/// Compares two numbers, including True and False; returns nothing for other values.
std::optional<std::partial_ordering> order_of_numbers(const Value& a, const Value& b) {
  std::int64_t room_a = 0, room_b = 0;
  const std::int64_t *whole_a = whole(a, room_a), *whole_b = whole(b, room_b);
  if (whole_a != nullptr && whole_b != nullptr) return *whole_a <=> *whole_b;
  const BigInteger *big_a = a.get<BigInteger>(), *big_b = b.get<BigInteger>();
  const auto by_less = [](bool less) { return less ? std::partial_ordering::less : std::partial_ordering::greater; };
  if (big_a != nullptr && big_b != nullptr)
    return *big_a == *big_b ? std::partial_ordering::equivalent : by_less(is_less_digits(big_a->digits, big_b->digits));
  if (big_a != nullptr && whole_b != nullptr) return by_less(big_a->digits.starts_with('-'));
  if (big_b != nullptr && whole_a != nullptr) return by_less(!big_b->digits.starts_with('-'));
  if (a.is_number() && b.is_number()) return a.number("") <=> b.number("");
  return std::nullopt;
}

}  // namespace

void Extent::add(const Value& item) {
  weight += item.weight();
  depth = std::max(depth, item.depth() + 1);
  if (weight > most_text) refuse("a value becomes larger than ", most_text, " bytes");
  if (depth > most_nested_values) refuse("values become nested more than ", most_nested_values, " deep");
}

const Value* Dict::find(const Value& key) const {
  const auto found = std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.first == key; });
  return found == items.end() ? nullptr : &found->second;
}

const Value* Dict::find_name(std::string_view key) const {
  spend(items.size() / 8);
  const auto found = std::find_if(items.begin(), items.end(), [&](const auto& item) {
    const std::string* text = item.first.as_text();
    if (text == nullptr || text->size() != key.size()) return false;
    spend(key.size() / 64);
    return *text == key;
  });
  return found == items.end() ? nullptr : &found->second;
}

void Dict::set(Value key, Value value) {
  const auto found = std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.first == key; });
  if (found == items.end())
    items.emplace_back(std::move(key), std::move(value));
  else
    found->second = std::move(value);
}

Value::Value(std::string text) {
  require_short(text);
  kind_ = std::make_shared<const SharedText>(SharedText{.text = std::move(text)});
}

Value Value::list(std::vector<Value> items, bool tuple) {
  List list{.items = std::move(items), .tuple = tuple};
  for (const Value& item : list.items) list.extent.add(item);
  list.held = Held(list.items.size() * sizeof(Value) + sizeof(List));
  return std::make_shared<const List>(std::move(list));
}

Value Value::dict(Dict dict) {
  dict.extent = {};
  for (const auto& [key, value] : dict.items) {
    dict.extent.add(key);
    dict.extent.add(value);
  }
  dict.held = Held(dict.items.size() * 2 * sizeof(Value) + sizeof(Dict));
  return std::make_shared<const Dict>(std::move(dict));
}

std::size_t Value::weight() const {
  if (const std::string* value = as_text()) return value->size() + 1;
  if (const List* value = as_list()) return value->extent.weight;
  if (const Dict* value = as_dict()) return value->extent.weight;
  if (const BigInteger* value = get<BigInteger>()) return value->digits.size() + 1;
  return 1;
}

int Value::depth() const {
  if (const List* value = as_list()) return value->extent.depth;
  if (const Dict* value = as_dict()) return value->extent.depth;
  if (const Function* value = as_function()) return value->extent.depth;
  if (const Loop* value = as_loop()) return value->items->extent.depth + 1;
  return 0;
}

Value Value::of(const nlohmann::ordered_json& json) {
  if (json.is_null()) return none();
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned()) {
    const auto number = json.get<std::uint64_t>();
    if (number > INT64_MAX) return BigInteger{std::to_string(number)};
    return static_cast<std::int64_t>(number);
  }
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_binary()) return BigInteger{std::string(json.get_binary().begin(), json.get_binary().end())};
  if (json.is_array()) {
    std::vector<Value> items;
    for (const nlohmann::ordered_json& item : json) items.push_back(of(item));
    return list(std::move(items));
  }
  Dict members;
  for (const auto& [key, value] : json.items()) members.items.emplace_back(key, of(value));
  return dict(std::move(members));
}

bool Value::is_number() const {
  return get<bool>() != nullptr || get<std::int64_t>() != nullptr || get<double>() != nullptr ||
         get<BigInteger>() != nullptr;
}

bool Value::truth() const {
  if (const bool* value = get<bool>()) return *value;
  if (const std::int64_t* value = get<std::int64_t>()) return *value != 0;
  if (const double* value = get<double>()) return *value != 0;
  if (const std::string* value = as_text()) return !value->empty();
  if (const List* value = as_list()) return !value->items.empty();
  if (const Dict* value = as_dict()) return !value->items.empty();
  return !is_undefined() && !is_none();
}

std::string Value::kind_name() const {
  if (const Undefined* value = get<Undefined>()) {
    const bool named = value->name != nullptr && !value->name->text.empty();
    return named ? "'" + value->name->text + "', which is undefined," : "an undefined value";
  }
  if (is_none()) return "none";
  if (get<bool>() != nullptr) return text();
  if (is_number()) return "the number " + text();
  if (as_text() != nullptr) return "a text";
  if (const List* value = as_list()) return value->tuple ? "a tuple" : "a list";
  if (as_dict() != nullptr) return "a dict";
  if (const Function* value = as_function()) return "the function " + value->name;
  return as_loop() != nullptr ? "loop" : "a namespace";
}

std::int64_t Value::integer(std::string_view what) const {
  std::int64_t room = 0;
  const std::int64_t* number = whole(*this, room);
  if (get<BigInteger>() != nullptr) refuse("a number of more than 63 bits");
  if (number == nullptr) refuse(what, " must be a whole number, and is ", kind_name());
  return *number;
}

double Value::number(std::string_view what) const {
  if (const double* value = get<double>()) return *value;
  if (!is_number()) refuse(what, " must be a number, and is ", kind_name());
  if (const BigInteger* big = get<BigInteger>()) return std::stod(big->digits);
  return static_cast<double>(integer(what));
}

const std::string& Value::text_or_throw(std::string_view what) const {
  const std::string* value = as_text();
  if (value == nullptr) refuse(what, " must be a text, and is ", kind_name());
  return *value;
}

bool operator==(const Value& a, const Value& b) {
  spend(1);
  const std::string *text_a = a.as_text(), *text_b = b.as_text();
  if (text_a != nullptr && text_b != nullptr) {
    if (text_a->size() != text_b->size()) return false;
    spend(text_a->size() / 64);
    return *text_a == *text_b;
  }
  if (const auto order = order_of_numbers(a, b)) return *order == 0;
  if (a.as_list() != nullptr && b.as_list() != nullptr) {
    if (a.as_list() == b.as_list()) return true;
    return a.as_list()->tuple == b.as_list()->tuple && a.as_list()->items == b.as_list()->items;
  }
  if (a.as_dict() != nullptr && b.as_dict() != nullptr) return same_members(*a.as_dict(), *b.as_dict());
  return a.kind_ == b.kind_;
}

bool is_less(const Value& a, const Value& b) {
  spend(1);
  if (const auto order = order_of_numbers(a, b)) return *order < 0;
  if (a.as_text() != nullptr && b.as_text() != nullptr) {
    spend(std::min(a.as_text()->size(), b.as_text()->size()) / 64);
    return *a.as_text() < *b.as_text();  // byte order of UTF-8 is the order of code points
  }
  if (a.as_list() != nullptr && b.as_list() != nullptr) {
    const std::vector<Value>& left = a.as_list()->items;
    const std::vector<Value>& right = b.as_list()->items;
    return std::lexicographical_compare(left.begin(), left.end(), right.begin(), right.end(), is_less);
  }
  refuse(a.kind_name(), " and ", b.kind_name(), " have no order");
}

std::vector<Value> items_of(const Value& value) {
  if (value.is_undefined()) return {};
  if (const List* list = value.as_list()) {
    spend(list->items.size());
    return list->items;
  }
  std::vector<Value> items;
  if (const Dict* dict = value.as_dict()) {
    spend(dict->items.size());
    for (const auto& item : dict->items) items.push_back(item.first);
    return items;
  }
  const std::string* text = value.as_text();
  if (text == nullptr) refuse(value.kind_name(), " cannot be iterated over");
  for (std::size_t at = 0; at < text->size();) {
    const std::size_t begin = at;
    next_code_point(*text, at);
    items.emplace_back(text->substr(begin, at - begin));
  }
  return items;
}

}  // namespace fsdp::text::jinja

// SPDX-License-Identifier: Apache-2.0
/// @file
/// What expressions do with values, with Python's semantics: operators, slices, attributes, items and calls of global
/// functions.
#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

#include "../unicode/code_points.hpp"
#include "builtins.hpp"
#include "runner.hpp"
#include "strings.hpp"

namespace fsdp::text::jinja {
namespace {

__extension__ using Wide = __int128;

/// Returns a sum, difference or product of two integers, which must fit 63 bits.
std::int64_t exact(Wide result) {
  if (result != static_cast<std::int64_t>(result)) refuse("a number of more than 63 bits");
  return static_cast<std::int64_t>(result);
}

std::int64_t power_of(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = exact(Wide{result} * base);
    if (exponent > 1) base = exact(Wide{base} * base);
  }
  return result;
}

bool divides(BinaryOperator kind) {
  return kind == BinaryOperator::divide || kind == BinaryOperator::floor || kind == BinaryOperator::modulo;
}

Value of_wholes(BinaryOperator kind, std::int64_t a, std::int64_t b) {
  if (divides(kind) && b == 0) refuse("division by zero");
  switch (kind) {
    case BinaryOperator::add: return exact(Wide{a} + b);
    case BinaryOperator::subtract: return exact(Wide{a} - b);
    case BinaryOperator::multiply: return exact(Wide{a} * b);
    case BinaryOperator::divide: return static_cast<double>(a) / static_cast<double>(b);
    case BinaryOperator::floor:
      if (b == -1) return exact(-Wide{a});
      return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
    case BinaryOperator::modulo:
      if (b == -1) return std::int64_t{0};
      return a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    default: break;
  }
  if (b < 0 && a == 0) refuse("division by zero");
  if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
  return power_of(a, b);
}

Value of_reals(BinaryOperator kind, double a, double b) {
  if (divides(kind) && b == 0) refuse("division by zero");
  const double remainder = divides(kind) ? std::fmod(a, b) : 0;
  const double modulo = remainder != 0 && (remainder < 0) != (b < 0)
                            ? remainder + b
                            : std::copysign(remainder, remainder != 0 ? remainder : b);
  switch (kind) {
    case BinaryOperator::add: return a + b;
    case BinaryOperator::subtract: return a - b;
    case BinaryOperator::multiply: return a * b;
    case BinaryOperator::divide: return a / b;
    case BinaryOperator::floor: return std::round((a - modulo) / b);
    case BinaryOperator::modulo: return modulo;
    default: break;
  }
  const double result = std::pow(a, b);
  if (!std::isfinite(result) && std::isfinite(a) && std::isfinite(b)) refuse("the power is no number");
  return result;
}

/// Returns `count` as a number of repetitions, checked against the size limit for a value of this weight.
std::size_t times(std::size_t weight, const Value& count) {
  const std::int64_t n = std::max<std::int64_t>(count.integer("how often"), 0);
  if (weight > 0 && static_cast<std::uint64_t>(n) > most_text / weight)
    refuse("a value becomes larger than ", most_text, " bytes");
  return static_cast<std::size_t>(n);
}

/// Repeats a text or a list; returns nothing if neither side is one.
std::optional<Value> repeated(const Value& a, const Value& b) {
  const bool is_first = a.as_text() != nullptr || a.as_list() != nullptr;
  const Value& what = is_first ? a : b;
  const Value& count = is_first ? b : a;
  if (const std::string* text = what.as_text()) {
    std::string out;
    std::size_t n = times(text->size() + 1, count);
    spend(n * (text->size() + 1) / 16);
    for (; n > 0; --n) out += *text;
    return out;
  }
  if (const List* list = what.as_list()) {
    std::vector<Value> items;
    std::size_t n = times(list->extent.weight, count);
    spend(n * (list->items.size() + 1));
    for (; n > 0; --n) items.insert(items.end(), list->items.begin(), list->items.end());
    return Value::list(std::move(items), list->tuple);
  }
  return std::nullopt;
}

constexpr std::string_view signs[] = {"+", "-", "*", "/", "//", "%", "**", "~"};  // by operator

}  // namespace

Value operate(BinaryOperator kind, const Value& a, const Value& b) {
  if (kind == BinaryOperator::join) return a.text() + b.text();
  if (a.is_number() && b.is_number()) {
    const bool real = a.get<double>() != nullptr || b.get<double>() != nullptr;
    return real ? of_reals(kind, a.number(""), b.number("")) : of_wholes(kind, a.integer(""), b.integer(""));
  }
  if (kind == BinaryOperator::add && a.as_text() != nullptr && b.as_text() != nullptr)
    return *a.as_text() + *b.as_text();
  if (kind == BinaryOperator::add && a.as_list() != nullptr && b.as_list() != nullptr) {
    std::vector<Value> items = a.as_list()->items;
    items.insert(items.end(), b.as_list()->items.begin(), b.as_list()->items.end());
    return Value::list(std::move(items), a.as_list()->tuple);
  }
  if (kind == BinaryOperator::multiply)
    if (std::optional<Value> value = repeated(a, b)) return *std::move(value);
  if (kind == BinaryOperator::modulo && a.as_text() != nullptr) refuse("formatting a text by % is not known");
  refuse(a.kind_name(), " and ", b.kind_name(), " have no '", signs[static_cast<std::size_t>(kind)], "'");
}

Value slice_of(const Value& of, const Value& begin, const Value& end, const Value& step) {
  const std::string* text = of.as_text();
  if (text == nullptr && of.as_list() == nullptr) refuse(of.kind_name(), " cannot be cut");
  const std::vector<Value> items = items_of(of);
  const auto size = static_cast<std::int64_t>(items.size());
  const std::int64_t stride = step.is_none() ? 1 : step.integer("a slice's step");
  if (stride == 0) refuse("a slice's step is 0");
  const std::int64_t lowest = stride > 0 ? 0 : -1, highest = stride > 0 ? size : size - 1;
  const auto place = [&](const Value& value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    const std::int64_t at = value.integer("a slice's bound");
    return std::clamp(at < 0 ? std::max(at, -size - 1) + size : at, lowest, highest);
  };
  const std::int64_t first = place(begin, stride > 0 ? lowest : highest),
                     last = place(end, stride > 0 ? highest : lowest);
  const std::int64_t pace = std::clamp(stride, -size - 1, size + 1);
  std::vector<Value> taken;
  for (std::int64_t i = first; stride > 0 ? i < last : i > last; i += pace)
    taken.push_back(items[static_cast<std::size_t>(i)]);
  if (text == nullptr) return Value::list(std::move(taken), of.as_list()->tuple);
  std::string out;
  for (const Value& character : taken) out += *character.as_text();
  return out;
}

namespace {

Value loop_attribute(const Loop& loop, const std::string& name) {
  const std::vector<Value>& items = loop.items->items;
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto length = static_cast<std::int64_t>(items.size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return length - index;
  if (name == "revindex0") return length - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index == length - 1;
  if (name == "length") return length;
  if (name == "previtem") return index == 0 ? Value(Undefined{"loop.previtem"}) : items[loop.index - 1];
  if (name == "nextitem") return index == length - 1 ? Value(Undefined{"loop.nextitem"}) : items[loop.index + 1];
  if (name == "cycle") {
    return std::make_shared<const Function>(
        Function{"loop.cycle", [index](Runner&, const CallArguments& arguments) {
                   if (arguments.positional.empty()) refuse("loop.cycle: nothing to choose from");
                   return arguments.positional[static_cast<std::size_t>(index) % arguments.positional.size()];
                 }});
  }
  refuse("loop.", name, " is not known");
}

/// Returns an item of a list by its index; a negative index counts from the end.
Value at_place(const std::vector<Value>& items, std::int64_t place) {
  const auto size = static_cast<std::int64_t>(items.size());
  if (place < 0) place += size;
  if (place < 0 || place >= size) return Undefined{"an item beyond the end"};
  return items[static_cast<std::size_t>(place)];
}

/// Returns a character of a text by its index; a negative index counts from the end.
Value character_at(std::string_view text, std::int64_t place) {
  spend(text.size() / 16);
  if (place < 0) place += length_of(text);
  if (place < 0) return Undefined{"an item beyond the end"};
  for (std::size_t at = 0; at < text.size(); --place) {
    const std::size_t length = utf8_length(static_cast<unsigned char>(text[at]));
    if (place == 0) return text.substr(at, length);
    at += length;
  }
  return Undefined{"an item beyond the end"};
}

}  // namespace

Value attribute_of(const Value& of, const std::string& name) {
  if (of.is_undefined()) refuse(of.kind_name(), " has no '", name, "'");
  if (const auto* members = of.get<std::shared_ptr<Namespace>>()) {
    const Value* found = (*members)->members.find_name(name);
    return found != nullptr ? *found : Value(Undefined{name});
  }
  if (const Loop* loop = of.as_loop()) return loop_attribute(*loop, name);
  if (std::optional<Value> method = method_of(of, name)) return *std::move(method);
  if (const Dict* dict = of.as_dict())
    if (const Value* found = dict->find_name(name)) return *found;
  return Undefined{name};
}

Value item_of(const Value& of, const Value& key) {
  if (of.is_undefined()) refuse(of.kind_name(), " has no items");
  if (const Dict* dict = of.as_dict())
    if (const Value* found = dict->find(key)) return *found;
  const bool is_place = key.get<std::int64_t>() != nullptr || key.get<bool>() != nullptr;
  if (is_place && of.as_list() != nullptr) return at_place(of.as_list()->items, key.integer("an index"));
  if (is_place && of.as_text() != nullptr) return character_at(*of.as_text(), key.integer("an index"));
  if (key.as_text() != nullptr) return attribute_of(of, *key.as_text());
  return Undefined{key.is_undefined() ? "" : key.representation()};
}

Value value_at(const Value& of, std::string_view path) {
  Value value = of;
  for (const std::string_view part : split(path, ".")) {
    const std::optional<std::int64_t> place = whole_number(part);
    value = item_of(value, place ? Value(*place) : Value(part));
  }
  return value;
}

bool contains(const Value& all, const Value& one) {
  if (const std::string* text = all.as_text()) {
    const std::string& what = one.text_or_throw("what is looked for in a text");
    spend_search(*text, what);
    return text->find(what) != text->npos;
  }
  if (const Dict* dict = all.as_dict()) return dict->find(one) != nullptr;
  const std::vector<Value> items = items_of(all);
  return std::find(items.begin(), items.end(), one) != items.end();
}

Bound::Bound(std::string_view function, Given arguments, std::span<const std::string_view> names, std::size_t needed)
    : function_(function), arguments_(arguments), names_(names), values_(names.size(), nullptr) {
  if (needed == any) return;
  if (arguments.positional.size() > names.size())
    refuse(function, ": takes at most ", names.size(), " arguments, and has ", arguments.positional.size());
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
    if (found == names.size()) refuse(function, ": the argument '", name, "' is not known");
    if (values_[found] != nullptr) refuse(function, ": has '", name, "' twice");
    values_[found] = &value;
  }
  for (std::size_t i = 0; i < needed; ++i)
    if (values_[i] == nullptr) refuse(function, ": lacks the argument '", names[i], "'");
}

namespace {

Value range(Runner&, const Value&, const Bound& given) {
  const bool one = given[1] == nullptr;
  const std::int64_t begin = one ? 0 : given.integer(0, 0), end = given.integer(one ? 0 : 1, 0);
  const std::int64_t step = given.integer(2, 1);
  if (step == 0) refuse("range: the step is 0");
  std::vector<Value> items;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<std::int64_t>(items.size()) == most_range) refuse("range: has more than ", most_range, " numbers");
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::list(std::move(items));
}

Dict named_values(std::string_view function, Given arguments) {
  Dict dict;
  if (arguments.positional.size() > 1) refuse(function, ": takes one dict and names");
  for (const Value& from : arguments.positional) {
    if (from.as_dict() == nullptr) refuse(function, ": ", from.kind_name(), " is no dict");
    spend(from.as_dict()->items.size());
    dict.items = from.as_dict()->items;
  }
  for (const auto& [name, value] : arguments.named) dict.set(name, value);
  return dict;
}

Value strftime_now(Runner& runner, const Value&, const Bound& given) {
  const std::string format = given.text(0, "");
  std::array<char, 1000> room{};
  const std::size_t length = std::strftime(room.data(), room.size(), format.c_str(), &runner.clock());
  return std::string(room.data(), length);
}

}  // namespace

std::optional<Value> global(const std::string& name) {
  using V = const Value&;
  using B = const Bound&;
  static const Builtins functions = {
      {"dict", {"dict", {}, Bound::any, [](Runner&, V, B b) { return Value::dict(named_values("dict", b.all())); }}},
      {"namespace",
       {"namespace",
        {},
        Bound::any,
        [](Runner& runner, V, B b) { return runner.make_namespace(named_values("namespace", b.all())); }}},
      {"raise_exception",
       {"raise_exception",
        {"message"},
        1,
        [](Runner&, V, B b) -> Value { refuse("the template refuses the conversation: ", b[0]->text()); }}},
      {"range", {"range", {"start", "stop", "step"}, 1, range}},
      {"strftime_now", {"strftime_now", {"format"}, 1, strftime_now}},
  };
  const auto found = functions.find(name);
  if (found == functions.end()) return std::nullopt;
  return Value(std::make_shared<const Function>(Function{
      name, [&builtin = found->second](Runner& runner, Given given) { return builtin.call(runner, {}, given); }}));
}

}  // namespace fsdp::text::jinja

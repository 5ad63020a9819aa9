// SPDX-License-Identifier: Apache-2.0
/// @file
/// Looks up names: attributes and items of values, and global functions.
#include <algorithm>
#include <array>
#include <ctime>

#include "../unicode/code_points.hpp"
#include "builtins.hpp"
#include "runner.hpp"
#include "strings.hpp"

namespace fsdp::text::jinja {
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

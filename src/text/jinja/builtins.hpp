// SPDX-License-Identifier: Apache-2.0
/// @file
/// Jinja's filters and tests, Python's methods, and the global functions that chat templates may call.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "value.hpp"

namespace fsdp::text::jinja {

using Given = const CallArguments&;

/// Binds arguments to the names of a function's parameters. Throws InputError for too many, unknown, repeated or
/// missing arguments.
class Bound {
 public:
  /// `needed`: number of leading parameters that are required; `any`: the function reads `all` arguments itself.
  Bound(std::string_view function, Given arguments, std::span<const std::string_view> names, std::size_t needed = 0);

  static constexpr std::size_t any = SIZE_MAX;

  /// Returns nullptr if the argument was not given; the value none counts as given.
  const Value* operator[](std::size_t i) const { return values_[i]; }
  bool truth(std::size_t i, bool otherwise) const { return values_[i] == nullptr ? otherwise : values_[i]->truth(); }
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const {
    return values_[i] == nullptr ? otherwise : values_[i]->integer(where(i));
  }
  std::string text(std::size_t i, std::string_view otherwise) const {
    return values_[i] == nullptr ? std::string(otherwise) : values_[i]->text_or_throw(where(i));
  }
  /// Returns nothing if the argument was not given or is none.
  std::optional<std::string> optional_text(std::size_t i) const {
    if (values_[i] == nullptr || values_[i]->is_none()) return std::nullopt;
    return values_[i]->text_or_throw(where(i));
  }
  Given all() const { return arguments_; }

 private:
  std::string where(std::size_t i) const { return message(function_, ": '", names_[i], "'"); }

  std::string_view function_;
  Given arguments_;
  std::span<const std::string_view> names_;
  std::vector<const Value*> values_;
};

/// A filter, a method of a value, or a global function, for which `of` is undefined.
struct Builtin {
  std::string_view name;  ///< for errors; functions that share a body share it
  std::vector<std::string_view> parameters;
  std::size_t needed = 0;  ///< number of required parameters, as in Bound
  Value (*function)(Runner& runner, const Value& of, const Bound& given) = nullptr;

  Value call(Runner& runner, const Value& of, Given arguments) const {
    return function(runner, of, Bound(name, arguments, parameters, needed));
  }
};
using Builtins = std::map<std::string_view, Builtin>;

bool is_filter(std::string_view name);
bool is_test(std::string_view name);

const Builtins& list_filters();
Value apply_filter(Runner& runner, const std::string& name, const Value& of, Given arguments);
bool passes_test(const std::string& name, const Value& of, Given arguments);

/// Returns a method of a text, list or dict, bound to it; nothing if there is none.
std::optional<Value> method_of(const Value& of, const std::string& name);

/// Evaluates `of.name`: prefers a method to a dict's value. Returns Undefined if there is neither.
Value attribute_of(const Value& of, const std::string& name);
/// Evaluates `of[key]`: prefers a dict's value to a method.
Value item_of(const Value& of, const Value& key);
/// Returns the value at a path such as "a.b.0", which some filters take.
Value value_at(const Value& of, std::string_view path);

/// Returns the texts of the items of a value, with `between` between them.
template <class Text>
std::string joined(const Value& items, std::string_view between, const Text& text_of) {
  std::string out;
  bool first = true;
  for (const Value& item : items_of(items)) {
    if (!std::exchange(first, false)) out += between;
    require_short(out);
    out += text_of(item);
  }
  return out;
}

/// Returns whether a list, a dict's keys or a text contains a value.
bool contains(const Value& all, const Value& one);

/// Returns a global function by its name; nothing if there is none.
std::optional<Value> global(const std::string& name);

}  // namespace fsdp::text::jinja

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Jinja's filters and tests, Python's methods, and the functions that templates of conversations may call.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "value.hpp"

namespace fsdp::text::jinja {

bool is_filter(std::string_view name);
bool is_test(std::string_view name);

Value apply_filter(Runner& runner, const std::string& name, const Value& of, const CallArguments& arguments);
bool passes_test(const std::string& name, const Value& of, const CallArguments& arguments);

/// A method of a text, list or dict, bound to it.
std::optional<Value> method_of(const Value& of, const std::string& name);

/// `of.name`: a method before a dict's value. Undefined where there is none.
Value attribute_of(const Value& of, const std::string& name);
/// `of[key]`: a dict's value before a method.
Value item_of(const Value& of, const Value& key);
/// "a.b.0", as filters take it.
Value value_at(const Value& of, std::string_view path);

/// Whether a list, a dict's keys or a text holds a value.
bool contains(const Value& all, const Value& one);

/// A function that a template sees under its name, if there is one.
std::optional<Value> global(const std::string& name);

/// Arguments by the names of a function's parameters. Throws InputError for too many, unknown, repeated and missing
/// ones.
class Bound {
 public:
  Bound(std::string_view function, const CallArguments& arguments, std::initializer_list<std::string_view> names,
        std::size_t needed = 0);

  /// Null where it was not given; none counts as given.
  const Value* operator[](std::size_t i) const { return values_[i]; }
  bool truth(std::size_t i, bool otherwise) const { return values_[i] == nullptr ? otherwise : values_[i]->truth(); }
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const;
  std::string text(std::size_t i, std::string_view otherwise) const;
  /// Nothing where it was not given or is none.
  std::optional<std::string> optional_text(std::size_t i) const;

 private:
  std::string where(std::size_t i) const;

  std::string function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

}  // namespace fsdp::text::jinja

// SPDX-License-Identifier: Apache-2.0
/// @file
/// A value of a template, as Python would hold it: what a name, an attribute or an expression stands for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include <fsdp/core/error.hpp>

namespace fsdp::text::jinja {

/// What a template does wrong while it runs; Runner adds the file and the line.
template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw InputError(message(parts...));
}

inline constexpr std::size_t most_text = std::size_t{64} << 20;  ///< bytes of a text, a list's texts together included

/// Throws InputError where a text that is being made is longer.
inline void require_short(const std::string& text) {
  if (text.size() > most_text) refuse("a text becomes longer than ", most_text, " bytes");
}

class Value;
class Runner;

/// A name that nothing stands for. It prints as nothing and is false; most other uses of it are errors.
struct Undefined {
  std::string name = {};
  friend bool operator==(const Undefined&, const Undefined&) { return true; }
};

/// Lists and dicts say what they weigh: values and bytes of texts within, those that are held twice counted twice, so
/// that what a few lines double over and over is refused before it is printed or compared.
struct List {
  std::vector<Value> items;
  bool tuple = false;
  std::size_t weight = 1;
};

/// Keys in the order in which they came, as in Python.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  std::size_t weight = 1;

  const Value* find(const Value& key) const;
  const Value* find_name(std::string_view key) const;
  void set(Value key, Value value);
};

/// What `namespace()` makes: the one thing whose members a template may set.
struct Namespace {
  Dict members;
};

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// A macro, a function or a method of a value.
struct Function {
  std::string name;
  std::function<Value(Runner&, const CallArguments&)> call;
};

/// What `loop` is.
struct Loop {
  std::shared_ptr<const List> items;
  std::size_t index = 0;
};

template <class T, class Variant>
inline constexpr bool is_one_of = false;
template <class T, class... Kinds>
inline constexpr bool is_one_of<T, std::variant<Kinds...>> = (std::is_same_v<T, Kinds> || ...);

class Value {
 public:
  using Kinds = std::variant<Undefined, std::nullptr_t, bool, std::int64_t, double, std::string, std::shared_ptr<List>,
                             std::shared_ptr<Dict>, std::shared_ptr<Namespace>, std::shared_ptr<const Function>,
                             std::shared_ptr<Loop>>;

  Value() = default;
  template <class T>
  requires is_one_of<T, Kinds> Value(T value)
      : kind_(std::in_place_type<T>, std::move(value)) {}     // NOLINT: conversions are its purpose
  Value(const char* text) : kind_(std::string(text)) {}       // NOLINT
  Value(std::string_view text) : kind_(std::string(text)) {}  // NOLINT

  static Value none() { return nullptr; }
  static Value list(std::vector<Value> items, bool tuple = false);
  static Value dict(Dict items);
  static Value of(const nlohmann::ordered_json& json);

  template <class T>
  const T* get() const {
    return std::get_if<T>(&kind_);
  }
  const List* as_list() const;
  const Dict* as_dict() const;
  const std::string* as_text() const { return get<std::string>(); }
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_none() const { return get<std::nullptr_t>() != nullptr; }
  bool is_number() const;  ///< True and False are numbers, as in Python
  const Kinds& kinds() const { return kind_; }

  std::size_t weight() const;
  bool truth() const;
  std::string text() const;            ///< what printing it writes: str()
  std::string representation() const;  ///< within a list: repr()
  std::string kind_name() const;       ///< for errors: "a text"

  /// Whole numbers, True and False. Throws InputError for anything else, which `what` names.
  std::int64_t integer(std::string_view what) const;
  double number(std::string_view what) const;
  const std::string& text_or_throw(std::string_view what) const;

  friend bool operator==(const Value& a, const Value& b);

 private:
  Kinds kind_;
};

/// a < b, of numbers, texts and lists. Throws InputError for others.
bool is_less(const Value& a, const Value& b);

/// What iterating over it gives: items, keys, or the characters of a text. Throws InputError for others.
std::vector<Value> items_of(const Value& value);

std::string print_float(double value);  ///< as Python's repr

/// json.dumps(value) with its arguments; `indent` below 0: one line.
struct JsonStyle {
  int indent = -1;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ascii = false;
};
std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace fsdp::text::jinja

// SPDX-License-Identifier: Apache-2.0
/// @file
/// A value of a template, with Python's types: the value of a name, an attribute or an expression; and the accounting
/// for a running template: the steps of its budget, and the memory of its live values.
///
/// Values are built, compared and printed by many functions. To avoid passing a budget through all of them, the budget
/// is thread-local while a template runs.
#pragma once

#include <cstddef>
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

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../budget.hpp"

namespace fsdp::text::jinja {

/// While it exists, the values of this thread spend from its budget. They must not outlive it.
class Spending {
 public:
  Spending(Budget& steps, std::size_t most_bytes)
      : steps_(steps), most_bytes_(most_bytes), outer_(std::exchange(current, this)) {}
  ~Spending() { current = outer_; }
  Spending(const Spending&) = delete;
  Spending& operator=(const Spending&) = delete;

 private:
  friend class Held;
  friend void spend(std::size_t steps);

  static inline thread_local Spending* current = nullptr;

  Budget& steps_;
  std::size_t most_bytes_, bytes_ = 0;
  Spending* outer_;
};

/// Spends steps of the template that runs in this thread. Does nothing if none runs.
inline void spend(std::size_t steps) {
  if (Spending::current != nullptr) Spending::current->steps_.spend(steps);
}

/// The memory of a value, counted until its destruction. Spends a step for every 16 bytes.
class Held {
 public:
  Held() = default;
  explicit Held(std::size_t bytes) : by_(Spending::current), bytes_(bytes) {
    if (by_ == nullptr) return;
    spend(1 + bytes / 16);
    if (bytes > by_->most_bytes_ - by_->bytes_)
      throw InputError(message("the template's values take more than ", by_->most_bytes_, " bytes"));
    by_->bytes_ += bytes;
  }
  ~Held() {
    if (by_ != nullptr) by_->bytes_ -= bytes_;
  }
  Held(Held&& other) noexcept : by_(std::exchange(other.by_, nullptr)), bytes_(other.bytes_) {}
  Held& operator=(Held&& other) noexcept {
    std::swap(by_, other.by_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

 private:
  Spending* by_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Throws an error of a running template; Runner adds the file and the line.
template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw InputError(message(shortened_part(parts)...));
}

inline constexpr std::size_t most_text = std::size_t{64} << 20;  ///< limit: bytes of a text, weight of a list or dict
inline constexpr int most_nested_values = 200;                   ///< limit on the depth of lists and dicts

/// Throws InputError if a text is longer than most_text.
inline void require_short(const std::string& text) {
  if (text.size() > most_text) refuse("a text becomes longer than ", most_text, " bytes");
}

class Value;
class Runner;

/// An integer of more than 63 bits, from data. It supports printing and comparison, but not arithmetic.
struct BigInteger {
  std::string digits = {};  ///< decimal, with a sign if it is negative
  friend bool operator==(const BigInteger&, const BigInteger&) = default;
};

/// A text in UTF-8. Copies of a value share it.
struct SharedText {
  std::string text;
  Held held{text.size() + 64};
};

/// The value of an undefined name. It prints as nothing and is false; most other uses are errors.
struct Undefined {
  Undefined() = default;
  explicit Undefined(std::string_view of)
      : name(std::make_shared<const SharedText>(SharedText{.text = shortened(of, most_name)})) {}

  static constexpr std::size_t most_name = 60;  ///< bytes in messages; a template may request a key of any length
  std::shared_ptr<const SharedText> name = nullptr;
  friend bool operator==(const Undefined&, const Undefined&) { return true; }
};

/// The total size and the depth of all values in a list or dict.
struct Extent {
  std::size_t weight = 1;  ///< number of values plus bytes of texts; shared parts count each time
  int depth = 1;           ///< nesting depth of the values

  /// Adds an item. Throws InputError beyond most_text and most_nested_values: a few lines of a template can repeatedly
  /// double or nest a value, and printing, comparing and destroying a value is recursive.
  void add(const Value& item);
};

/// A list or tuple.
struct List {
  std::vector<Value> items;
  bool tuple = false;
  Extent extent = {};
  Held held = {};
};

/// A dict, with keys in the order of insertion, as in Python.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  Extent extent = {};
  Held held = {};

  const Value* find(const Value& key) const;
  const Value* find_name(std::string_view key) const;
  void set(Value key, Value value);
};

/// The result of `namespace()`: the only kind of value whose members a template can set.
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
  Extent extent = {};  ///< extent of the bound value, if it is a method
};

/// The value of `loop`.
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
  using Kinds = std::variant<Undefined, std::nullptr_t, bool, std::int64_t, double, std::shared_ptr<const SharedText>,
                             std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
                             std::shared_ptr<const Function>, std::shared_ptr<const Loop>, BigInteger>;

  Value() = default;
  template <class T>
  requires is_one_of<T, Kinds> Value(T value)
      : kind_(std::in_place_type<T>, std::move(value)) {}     // NOLINT: conversions are its purpose
  Value(std::string text);                                    // NOLINT
  Value(const char* text) : Value(std::string(text)) {}       // NOLINT
  Value(std::string_view text) : Value(std::string(text)) {}  // NOLINT

  static Value none() { return nullptr; }
  static Value list(std::vector<Value> items, bool tuple = false);
  static Value dict(Dict items);
  /// Converts JSON. A binary value in it contains the digits of a large integer (JsonLimits::keep_digits).
  static Value of(const nlohmann::ordered_json& json);

  template <class T>
  const T* get() const {
    return std::get_if<T>(&kind_);
  }
  const List* as_list() const { return pointed_to<List>(); }
  const Dict* as_dict() const { return pointed_to<Dict>(); }
  const Function* as_function() const { return pointed_to<Function>(); }
  const Loop* as_loop() const { return pointed_to<Loop>(); }
  const std::string* as_text() const {
    const SharedText* shared = pointed_to<SharedText>();
    return shared == nullptr ? nullptr : &shared->text;
  }
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_none() const { return get<std::nullptr_t>() != nullptr; }
  bool is_number() const;  ///< True and False are numbers, as in Python
  const Kinds& kinds() const { return kind_; }

  std::size_t weight() const;
  int depth() const;  ///< nesting depth; 0 if it contains no other values
  bool truth() const;
  std::string text() const;            ///< for printing: str()
  std::string representation() const;  ///< for printing within a list: repr()
  std::string kind_name() const;       ///< for errors: "a text"

  /// Returns an integer; True and False are 1 and 0. Throws InputError for other values. `what`: the value's name in
  /// the error.
  std::int64_t integer(std::string_view what) const;
  double number(std::string_view what) const;
  const std::string& text_or_throw(std::string_view what) const;

  friend bool operator==(const Value& a, const Value& b);

 private:
  template <class T>
  const T* pointed_to() const {
    const auto* pointer = get<std::shared_ptr<const T>>();
    return pointer == nullptr ? nullptr : pointer->get();
  }

  Kinds kind_;
};

/// Returns a < b for numbers, texts and lists. Throws InputError for other values.
bool is_less(const Value& a, const Value& b);

/// Returns the values that iteration visits: a list's items, a dict's keys, or a text's characters. Throws InputError
/// for other values. Spends a step for each.
std::vector<Value> items_of(const Value& value);

/// The arguments of json.dumps. A negative `indent` writes one line.
struct JsonStyle {
  int indent = -1;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ascii = false;
};
std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace fsdp::text::jinja

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The values that a model's config or an optimizer exposes by `visit`: type-erased access, and copies by name for
/// code that does not know the model (checkpoints, metrics, terminal output).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include <tessera/fsdp/core/lists.hpp>

namespace fsdp {

/// A reference to a value of an enum whose values have names, from 0.
struct NamedChoice {
  std::uint8_t* index;
  std::span<const std::string_view> names;
};

/// A pointer to a value, with its name and help text in flags and metrics.
struct NamedValue {
  std::string name, help;
  std::variant<std::int64_t*, double*, bool*, std::string*, NamedChoice> value;
};

/// The visitor that collects values; `visit` calls it with (name, value, help). An enum is a value too, if its values
/// have names: `std::span<const std::string_view> value_names(Enum)`, found by its namespace.
struct ValueList {
  std::vector<NamedValue> list;

  /// Adds a value.
  template <class T>
  void operator()(std::string_view name, T& value, std::string_view help) {
    constexpr bool is_choice = requires { value_names(value); };
    static_assert(
        is_choice || std::is_constructible_v<decltype(NamedValue::value), T*>,
        "fsdp: a model's config visits a value that is no std::int64_t, double, bool or std::string; flags and "
        "metrics know these four, so change its type or leave it out of visit");
    if constexpr (is_choice) {
      static_assert(std::is_same_v<std::underlying_type_t<T>, std::uint8_t>, "fsdp: give the enum std::uint8_t");
      add({std::string(name), std::string(help),
           NamedChoice{reinterpret_cast<std::uint8_t*>(&value), value_names(value)}});
    } else {
      add({std::string(name), std::string(help), &value});
    }
  }

  void add(NamedValue value);  ///< adds a value
};

/// A reference to one object and its named values.
class NamedValues {
 public:
  /// Refers to `visited`, which must outlive this object.
  template <class T>
  requires(!std::is_const_v<T> && requires(T & visited, ValueList& list) { T::visit(visited, list); })
      NamedValues(T& visited)
      : visited_(&visited), visit_([](void* object, ValueList& list) { T::visit(*static_cast<T*>(object), list); }) {}

  std::vector<NamedValue> list() const;  ///< the values that `visit` lists now, in its order

 private:
  void* visited_;
  void (*visit_)(void*, ValueList&);
};

/// A value of a model's config with its name in flags and metrics.
struct ConfigValue {
  std::string name = {};
  std::variant<std::int64_t, double, bool, std::string> value = {};

  friend bool operator==(const ConfigValue&, const ConfigValue&) = default;
};

using ConfigValues = std::vector<ConfigValue>;

/// Returns a value as text: "96", "1e-05", "true".
std::string text_of(const ConfigValue& value);

/// Returns a copy of a value; of an enum its name.
ConfigValue copy_of(const NamedValue& value);
/// Returns copies of all values, in the same order.
ConfigValues copies_of(const NamedValues& values);

/// Returns the values that `visit` of a config lists, in its order.
template <class Config>
ConfigValues values_of(Config config) {
  return copies_of(config);
}

}  // namespace fsdp

FSDP_LIST(fsdp::ConfigValue)  // compiled into the library

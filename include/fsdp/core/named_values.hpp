// SPDX-License-Identifier: Apache-2.0
/// @file
/// Type-erased access to the values that a model's config or an optimizer exposes by `visit`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace fsdp {

/// A pointer to a value, with the name and help that flags and metrics use.
struct NamedValue {
  std::string name, help;
  std::variant<std::int64_t*, double*, bool*, std::string*> value;
};

/// The visitor that collects values; `visit` calls it with (name, value, help).
class ValueList {
 public:
  /// Adds a value.
  /// @{
  void operator()(std::string_view name, std::int64_t& value, std::string_view help);
  void operator()(std::string_view name, double& value, std::string_view help);
  void operator()(std::string_view name, bool& value, std::string_view help);
  void operator()(std::string_view name, std::string& value, std::string_view help);
  /// @}
  /// Rejects any other type at compile time.
  template <class T>
  void operator()(std::string_view, T&, std::string_view) {
    static_assert(
        std::is_void_v<T>,
        "fsdp: a model's config visits a value that is no std::int64_t, double, bool or std::string; flags and "
        "metrics know these four, so change its type or leave it out of visit");
  }

 private:
  friend class NamedValues;
  std::vector<NamedValue> list_;
};

/// A reference to one object and its named values.
class NamedValues {
 public:
  /// Refers to `visited`, which must outlive this object.
  template <class T>
  requires(!std::is_const_v<T> && requires(T & visited, ValueList& list) { T::visit(visited, list); })
      NamedValues(T& visited)
      : visited_(&visited), visit_([](void* object, ValueList& list) { T::visit(*static_cast<T*>(object), list); }) {}

  /// Returns the values in the order of `visit`.
  std::vector<NamedValue> list() const;

 private:
  void* visited_;
  void (*visit_)(void*, ValueList&);
};

}  // namespace fsdp

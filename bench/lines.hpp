// SPDX-License-Identifier: Apache-2.0
/// @file
/// The output of `tessera_bench`: one JSON object per line. bench/README.md describes how each value is measured.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>

namespace fsdp::bench {

/// A line of output: named values in the order in which a bench adds them.
class Line {
 public:
  /// The first value is the bench's name.
  explicit Line(std::string_view bench) { add("bench", bench); }

  /// Adds a value. A double is rounded to five significant digits; a double that is not finite becomes null, since JSON
  /// has no such numbers. An empty optional is omitted.
  /// @{
  Line& add(std::string_view name, std::string_view value);
  Line& add(std::string_view name, double value);
  template <std::integral T>
  Line& add(std::string_view name, T value) {
    if constexpr (std::same_as<T, bool>)
      return append(name, value ? "true" : "false");
    else
      return append(name, std::to_string(value));
  }
  template <class T>
  Line& add(std::string_view name, const std::optional<T>& value) {
    return value ? add(name, *value) : *this;
  }
  /// @}
  /// Adds several values, each preceded by its name.
  template <class T, class... Rest>
  requires(sizeof...(Rest) > 0) Line& add(std::string_view name, const T& value, const Rest&... rest) {
    add(name, value);
    return add(rest...);
  }
  /// Adds a value with all its digits.
  Line& add_exact(std::string_view name, double value);

  /// Prints the line on stdout and flushes it.
  void print() const;

 private:
  Line& append(std::string_view name, const std::string& json);

  std::string text_;  ///< text of the object, without its braces
};

}  // namespace fsdp::bench

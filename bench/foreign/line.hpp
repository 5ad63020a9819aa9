// SPDX-License-Identifier: Apache-2.0
/// @file
/// A line of output: one JSON object, without a library for JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fsdp::bench {

/// An object of names and values, in the order in which they are added. Names and texts are literals without quotes.
class Line {
 public:
  explicit Line(std::string_view bench) { add("bench", bench); }

  Line& add(std::string_view name, std::string_view text);
  Line& add(std::string_view name, std::int64_t number);
  Line& add(std::string_view name, double number);  ///< to five significant digits
  /// Prints the object, and flushes.
  void print() const;

 private:
  Line& add_value(std::string_view name, std::string_view value);

  std::string text_;
};

}  // namespace fsdp::bench

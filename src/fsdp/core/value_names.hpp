// SPDX-License-Identifier: Apache-2.0
/// @file
/// Values of enums that have names, such as the values of flags.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

namespace fsdp {

/// Throws InputError about a flag's value that is not one of the permitted names.
[[noreturn]] inline void refuse_unknown(std::string_view flag, std::string_view value,
                                        std::span<const std::string> names) {
  throw InputError(
      message("--", flag, " ", value.empty() ? "''" : shortened(value), " is not known; ", suggestion(value, names)));
}

/// The names of an enum's values, in the order of the values. `last`: the last value.
template <auto last>
class ValueNames {
 public:
  using Value = decltype(last);

  template <class... Names>
  constexpr explicit ValueNames(const Names&... names) : names_{names...} {
    static_assert(sizeof...(Names) == std::tuple_size_v<decltype(names_)>, "fsdp: a value of the enum has no name");
  }

  /// Returns the value with this name; nothing if there is none.
  std::optional<Value> find(std::string_view text) const {
    const auto found = std::ranges::find(names_, text);
    return found == names_.end() ? std::nullopt : std::optional(static_cast<Value>(found - names_.begin()));
  }
  /// Returns the value with the name given to a flag. Throws InputError if there is none.
  Value value(std::string_view flag, std::string_view text) const {
    if (const std::optional<Value> found = find(text)) return *found;
    refuse_unknown(flag, text, std::vector<std::string>(names_.begin(), names_.end()));
  }
  std::string name(Value value) const { return std::string(names_[static_cast<std::size_t>(value)]); }

 private:
  std::array<std::string_view, static_cast<std::size_t>(last) + 1> names_;
};

}  // namespace fsdp

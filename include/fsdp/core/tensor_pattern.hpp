// SPDX-License-Identifier: Apache-2.0
/// @file
/// Patterns that select tensors by name, role and size, and lists of values that apply to the selected tensors:
/// `on("*norm*", x)`, `on({.role = Role::vector, .most = 4096}, y)`, `otherwise(z)`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/core/parameter.hpp>

namespace fsdp {

/// Selects the tensors that match all of its members.
struct TensorPattern {
  /// Alternatives, separated by `|`. Each is a shell pattern (*, ?, [...]) that matches the whole name of a unit or of
  /// a tensor, or one part of a tensor's name between dots: "embed_tokens" matches "model.embed_tokens.weight". A tied
  /// weight has several names (Parameter::tied_as).
  std::string names = "*";
  std::optional<Role> role = {};                                 ///< nullopt: any role
  std::int64_t least = 0;                                        ///< least number of elements
  std::int64_t most = std::numeric_limits<std::int64_t>::max();  ///< largest number of elements

  /// Whether a tensor of a unit matches.
  bool matches(std::string_view unit, const Parameter& parameter) const;
  /// Returns the pattern as text, as in "*norm*,role=vector,most=4096".
  std::string text() const;
  /// Returns the pattern of such a text. Throws InputError, which begins with `what`, for any other text.
  static TensorPattern from(std::string_view text, std::string_view what);

  friend bool operator==(const TensorPattern&, const TensorPattern&) = default;
};

/// A value for the tensors that a pattern selects.
template <class T>
struct On {
  TensorPattern pattern;
  T value;
};
/// A value for the tensors that no pattern selects.
template <class T>
struct Otherwise {
  T value;
};

/// Return these.
/// @{
template <class T>
On<T> on(std::string names, T value) {
  return {{.names = std::move(names)}, std::move(value)};
}
template <class T>
On<T> on(TensorPattern pattern, T value) {
  return {std::move(pattern), std::move(value)};
}
template <class T>
Otherwise<T> otherwise(T value) {
  return {std::move(value)};
}
/// @}

namespace detail {

/// The type of the value in on(pattern, value) and otherwise(value); of anything else, its own.
template <class Part>
struct Listed : std::type_identity<Part> {
  static constexpr bool has_pattern = false, is_rest = false;
};
template <class T>
struct Listed<On<T>> : std::type_identity<T> {
  static constexpr bool has_pattern = true, is_rest = false;
};
template <class T>
struct Listed<Otherwise<T>> : std::type_identity<T> {
  static constexpr bool has_pattern = false, is_rest = true;
};
/// Whether parts are on(pattern, value) any number of times, then otherwise(value).
template <class... Parts>
consteval bool end_with_otherwise() {
  const bool rest[] = {Listed<Parts>::is_rest...};
  return rest[sizeof...(Parts) - 1] && (std::size_t{Listed<Parts>::has_pattern} + ...) == sizeof...(Parts) - 1;
}

}  // namespace detail

/// Returns the index of the pattern that selects a tensor; the number of patterns if none does. Throws InputError,
/// which begins with `what`, if several do.
std::size_t index_of(std::span<const TensorPattern> patterns, std::string_view unit, const Parameter& parameter,
                     std::string_view what);

}  // namespace fsdp

FSDP_LIST(fsdp::TensorPattern)  // compiled into the library

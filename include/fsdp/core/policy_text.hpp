// SPDX-License-Identifier: Apache-2.0
/// @file
/// Names of policies for people: in logs, metrics, and the ranks' comparison of their arguments.
///
/// No code branches on these texts. A user-defined policy need not provide one: its type's name is used instead.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace fsdp {

/// Returns the type's name as the compiler writes it, such as "mine::Strategy".
template <class P>
constexpr std::string_view type_name() {
  const std::string_view function = __PRETTY_FUNCTION__;  // "... [with P = X; ...]" or "... [P = X]"
  const std::string_view before = "P = ";
  const auto begin = function.find(before) + before.size();
  const auto end = function.find(';', begin);
  return function.substr(begin, (end == std::string_view::npos ? function.rfind(']') : end) - begin);
}

/// Returns the kind of a policy: its static `text()`, else its `name`, else its type's name.
template <class P>
std::string policy_text() {
  if constexpr (requires {
                  { P::text() } -> std::convertible_to<std::string>;
                })
    return P::text();
  else if constexpr (requires { std::string_view(P::name); })
    return std::string(P::name);
  else
    return std::string(type_name<P>());
}

/// Returns a policy's text with its numbers, such as "hybrid:2": its `text()`, else its kind.
template <class P>
std::string policy_text(const P& policy) {
  if constexpr (requires {
                  { policy.text() } -> std::convertible_to<std::string>;
                })
    return policy.text();
  else
    return policy_text<P>();
}

}  // namespace fsdp

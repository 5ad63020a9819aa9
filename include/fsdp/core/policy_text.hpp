// SPDX-License-Identifier: Apache-2.0
/// @file
/// Names of policies for logs, metrics, and the comparison of arguments between ranks.
///
/// No code branches on these texts. A user-defined policy need not provide one: its type's name is used instead. A
/// policy whose `text()` or `name` is not a text does not compile.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/fsdp/core/has_member.hpp>

namespace fsdp {
namespace detail {

FSDP_HAS_MEMBER(text)
FSDP_HAS_MEMBER(name)

/// Whether a policy's text(), if it exists, returns a text.
template <class P>
consteval bool check_text() {
  static_assert(
      !has_text<P>() || requires(const P& policy) { std::string(policy.text()); },
      "fsdp: a policy has a text() that gives no text; make it std::string text() const, or static, without arguments");
  return true;
}

/// Whether the name of a policy without a static text(), if it exists, is a text.
template <class P>
consteval bool check_name() {
  static_assert(
      !has_name<P>() ||
          requires {
            std::string_view(P::name);
            requires !std::is_member_pointer_v<decltype(&P::name)>;
          },
      "fsdp: a policy has a name that is no text; make it static constexpr std::string_view name");
  return true;
}

}  // namespace detail

/// Returns the type's name as the compiler prints it, such as "mine::Strategy".
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
  static_assert(detail::check_text<P>());
  if constexpr (requires { std::string(P::text()); }) {
    return std::string(P::text());
  } else {
    static_assert(detail::check_name<P>());
    if constexpr (requires { std::string_view(P::name); })
      return std::string(P::name);
    else
      return std::string(type_name<P>());
  }
}

/// Returns a policy's text with its numbers, such as "hybrid:2": its `text()`, or else its kind.
template <class P>
std::string policy_text(const P& policy) {
  static_assert(detail::check_text<P>());
  if constexpr (requires { std::string(policy.text()); })
    return std::string(policy.text());
  else
    return policy_text<P>();
}

}  // namespace fsdp

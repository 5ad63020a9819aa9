// SPDX-License-Identifier: Apache-2.0
/// @file
/// Names of policies for logs, metrics, and the comparison of arguments between ranks; and a policy's name and numbers
/// as a list, from which its texts are written and read. No code branches on these texts. A user-defined policy need
/// not provide one: its type's name is used instead. A policy whose `text()` or `name` is not a text does not compile.
/// A policy with numbers lists its parts in `void visit(PolicyParts& parts)`, in the order of its text, and its
/// `text()` returns listed_text(*this). A policy without numbers needs only a `name`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/core/lists.hpp>

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
    static_assert(
        !detail::has_name<P>() ||
            requires {
              std::string_view(P::name);
              requires !std::is_member_pointer_v<decltype(&P::name)>;
            },
        "fsdp: a policy has a name that is no text; make it static constexpr std::string_view name");
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

/// A number of a policy, written as ":prefetch=2", or an option, which is 0 or 1, written as ":deferred".
struct PolicyNumber {
  std::string_view name = {};  ///< name in texts; empty: the number is written without a name, as in "hybrid:2"
  /// Placeholder of the number in the kind's name, such as "K" in "hybrid:K"; empty: not part of the kind.
  std::string_view kind = {};
  std::int64_t usual = 0;  ///< default value; omitted in texts, unless the number is part of the kind
  std::int64_t least = 1;  ///< smallest value that a text may specify
  std::int64_t most = std::numeric_limits<std::int32_t>::max();
  bool is_option = false;  ///< an option: the name without a value means 1
  bool is_bytes = false;   ///< texts may specify it as 512MiB, and memory_left as "auto"
  std::string_view help = {};
};

/// A number of bytes that is not known yet: the memory that remains. A trainer replaces it before anything runs.
inline constexpr std::int64_t memory_left = -1;

/// The list of a policy's parts.
class PolicyParts {
 public:
  /// A word of the kind's name, or a number.
  struct Part {
    std::string word;
    PolicyNumber number = {};
    void* value = nullptr;  ///< the value of a number; nullptr for a word
    std::int64_t (*get)(const void* value) = nullptr;
    void (*set)(void* value, std::int64_t number) = nullptr;
    bool inner = false;    ///< belongs to an inner policy
    bool implied = false;  ///< omitted in texts unless a word follows
    bool fixed = false;    ///< determined by the type, so never read from a text
  };

  /// An empty list, and a copy of one.
  /// @{
  PolicyParts();
  PolicyParts(const PolicyParts&);
  /// @}
  ~PolicyParts();

  /// Adds a word of the kind's name.
  void word(std::string_view word);
  /// Adds a number; `read` stores it in `value`.
  template <class T>
  void number(const PolicyNumber& number, T& value) {
    add(
        number, &value, [](const void* of) { return static_cast<std::int64_t>(*static_cast<const T*>(of)); },
        [](void* of, std::int64_t to) { *static_cast<T*>(of) = static_cast<T>(to); });
  }
  /// Adds the parts of the policy that this one derives from, or contains.
  /// @{
  template <class P>
  void part(P& policy) {
    if constexpr (requires { policy.visit(*this); })
      policy.visit(*this);
    else
      word(policy_text(policy));
  }
  template <class... P>
  void part(std::variant<P...>& held) {
    std::visit([this](auto& policy) { this->part(policy); }, held);
  }
  /// @}
  /// Adds an inner policy, which may stand at any position after the name of this one. Its name is omitted if it is
  /// `usual`.
  template <class P>
  void inner(P& policy, std::string_view usual) {
    const std::size_t begin = list_.size();
    part(policy);
    mark_inner(begin, usual);
  }
  /// Adds a part that texts show but that is never read, since the type determines it.
  void suffix(std::string_view name, std::string_view value);
  const std::vector<Part>& list() const { return list_; }  ///< parts, in the order of the text
  /// Returns the policy's text, or its kind alone: "hybrid:2:zero3:prefetch=2" or "hybrid:K:zero3".
  std::string text(bool kind_alone = false) const;
  /// Reads the numbers from a text, whose parts after the first word may have any order. Returns false if the text
  /// belongs to another kind of policy; the numbers are then unspecified. Throws InputError if a number is too large;
  /// `what`: the source of the text, for the message.
  bool read(std::string_view text, std::string_view what);
  void set(std::string_view name, std::int64_t number);  ///< sets the number with a name, if the policy has one

 private:
  void add(const PolicyNumber& number, void* value, std::int64_t (*get)(const void*), void (*set)(void*, std::int64_t));
  void mark_inner(std::size_t begin, std::string_view usual);  ///< marks the parts from `begin` on as an inner policy's

  std::vector<Part> list_;
};

/// Returns a policy's text, or only its kind, made from the parts that the policy lists.
template <class P>
std::string listed_text(P policy, bool kind_alone = false) {
  PolicyParts parts;
  parts.part(policy);
  return parts.text(kind_alone);
}

}  // namespace fsdp

FSDP_LIST(fsdp::PolicyParts::Part)  // compiled into the library

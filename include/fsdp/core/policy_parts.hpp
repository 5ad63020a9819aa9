// SPDX-License-Identifier: Apache-2.0
/// @file
/// A policy's name and numbers as a list, which writes and reads the policy's texts.
///
/// A policy makes it by `void visit(PolicyParts& parts)`, in the order of its text, and has `text()` return
/// listed_text(*this). One without numbers needs a `name` alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_text.hpp>

namespace fsdp {

/// A number of a policy, as ":prefetch=2" in texts, or an option, which is 0 or 1, as ":deferred".
struct PolicyNumber {
  std::string_view name = {};  ///< in texts; empty: the number stands alone, as in "hybrid:2"
  std::string_view kind = {};  ///< its place in the kind's name, as "K" in "hybrid:K"; empty: it has none
  std::int64_t usual = 0;      ///< texts leave it out, unless it is part of the kind
  std::int64_t least = 1;      ///< smallest that a text may say
  std::int64_t most = std::numeric_limits<std::int32_t>::max();
  bool is_option = false;  ///< its name alone says 1
  bool is_bytes = false;   ///< texts may say it as 512MiB, and say memory_left as "auto"
  std::string_view help = {};
};

/// A number of bytes that is not known yet: what memory leaves. A trainer replaces it before anything runs.
inline constexpr std::int64_t memory_left = -1;

/// What a policy lists.
class PolicyParts {
 public:
  /// A word of the kind's name, or a number.
  struct Part {
    std::string word;
    PolicyNumber number = {};
    void* value = nullptr;  ///< of the number; nullptr: a word
    std::int64_t (*get)(const void* value) = nullptr;
    void (*set)(void* value, std::int64_t number) = nullptr;
    bool inner = false;    ///< of a policy inside
    bool implied = false;  ///< left out unless a word follows
    bool fixed = false;    ///< determined by the type, never read
  };

  /// Adds a word of the kind's name.
  void word(std::string_view word) { list_.push_back({.word = std::string(word)}); }
  /// Adds a number, which is read into `value`.
  template <class T>
  void number(const PolicyNumber& number, T& value) {
    list_.push_back({.word = {},
                     .number = number,
                     .value = &value,
                     .get = [](const void* of) { return static_cast<std::int64_t>(*static_cast<const T*>(of)); },
                     .set = [](void* of, std::int64_t to) { *static_cast<T*>(of) = static_cast<T>(to); }});
  }
  /// Lists the policy that this one derives from, or holds.
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
  /// Lists a policy that may stand anywhere behind the name of this one. Its name is left out if it is `usual`.
  template <class P>
  void inner(P& policy, std::string_view usual) {
    const std::size_t begin = list_.size();
    part(policy);
    require(begin < list_.size(), "a policy's visit lists nothing; begin with parts.word(its name)");
    for (std::size_t i = begin; i < list_.size(); ++i) list_[i].inner = true;
    list_[begin].implied = list_[begin].word == usual;
  }
  /// Adds a part that texts show and that is never read, since the type determines it.
  void suffix(std::string_view name, std::string_view value);

  /// The parts, in the order of the text.
  const std::vector<Part>& list() const { return list_; }
  /// Returns the policy's text, or its kind alone: "hybrid:2:zero3:prefetch=2" or "hybrid:K:zero3".
  std::string text(bool kind_alone = false) const;
  /// Reads the numbers from a text; its parts after the first word may have any order. Returns false if the text is of
  /// another kind; the numbers are then unspecified. Throws InputError if one is too large; `what`: whose text it is.
  bool read(std::string_view text, std::string_view what);
  /// Sets the number of a name, where there is one.
  void set(std::string_view name, std::int64_t number);

 private:
  std::vector<Part> list_;
};

/// Returns what a policy lists as its text, or as its kind.
template <class P>
std::string listed_text(P policy, bool kind_alone = false) {
  PolicyParts parts;
  parts.part(policy);
  return parts.text(kind_alone);
}

}  // namespace fsdp

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Optional members: detects whether a class has a member with a given name, whatever its kind, type or access; and
/// members that exist only in some instances of a template. A plain `requires` cannot distinguish a member of the
/// wrong type from an absent one, so that the policy would silently behave differently from what its author wrote. A
/// check that finds the name can report the error.
#pragma once

#include <type_traits>

namespace fsdp {

/// FSDP_HAS_MEMBER(text) defines `has_text<T>()`, true if T or a base of T has a member `text`. It looks up the name in
/// a class that derives from T and from another class with such a member; the look-up is ambiguous if T has one. If no
/// class can derive from T, it finds only names that `&T::text` finds.
#define FSDP_HAS_MEMBER(member)                                                 \
  struct Other_##member {                                                       \
    int member;                                                                 \
  };                                                                            \
  template <class T>                                                            \
  struct With_##member : T, Other_##member {};                                  \
  template <class T>                                                            \
  consteval bool has_##member() {                                               \
    if constexpr (std::is_class_v<T> && !std::is_final_v<T>) return !requires { \
        &With_##member<T>::member;                                              \
      };                                                                        \
    else                                                                        \
      return requires { &T::member; };                                          \
  }

/// The type of a member in instances that do not have it.
struct Absent {};

/// T if `has` is true, else Absent, so that no code of T is compiled in instances that do not use it.
template <bool has, class T>
using OnlyIf = std::conditional_t<has, T, Absent>;

}  // namespace fsdp

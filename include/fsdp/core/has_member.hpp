// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether a class has a member of some name, whatever its kind, type or access.
///
/// For optional members. A plain `requires` cannot tell a member of the wrong type from an absent one: the policy would
/// silently do something else than its author wrote. A check that finds the name can report what is wrong with it.
#pragma once

#include <type_traits>

namespace fsdp {

/// FSDP_HAS_MEMBER(text) defines `has_text<T>()`, true if T has a member `text`; bases count. It looks the name up in a
/// class that derives from T and from another class with such a member, which is ambiguous if T has one. If no class
/// can derive from T, it finds only what `&T::text` can name.
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

}  // namespace fsdp

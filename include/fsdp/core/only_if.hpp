// SPDX-License-Identifier: Apache-2.0
/// @file
/// Members and variables that exist only in some instances of a template.
#pragma once

#include <type_traits>

namespace fsdp {

/// The type of a member in instances that do not have it.
struct Absent {};

/// T if `has` is true, else Absent, so that no code of T is compiled in instances that do not use it.
template <bool has, class T>
using OnlyIf = std::conditional_t<has, T, Absent>;

}  // namespace fsdp

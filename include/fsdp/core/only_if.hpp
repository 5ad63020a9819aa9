// SPDX-License-Identifier: Apache-2.0
/// @file
/// Members and variables that only some instances of a template have.
#pragma once

#include <type_traits>

namespace fsdp {

/// What stands where an instance has none.
struct Absent {};

/// T if `has`, so that nothing of T is compiled where it is not used; else Absent.
template <bool has, class T>
using OnlyIf = std::conditional_t<has, T, Absent>;

}  // namespace fsdp

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The version of these headers. Configuring with CMake fails if it differs from project(VERSION).
#pragma once

#include <compare>
#include <string_view>

namespace fsdp {

/// A version of the library. Before 1.0, a new minor version may be incompatible.
struct Version {
  int major = 0;
  int minor = 0;
  int patch = 0;

  friend constexpr auto operator<=>(const Version&, const Version&) = default;
};

inline constexpr Version version{.major = 0, .minor = 3, .patch = 0};
inline constexpr std::string_view version_string = "0.3.0";

}  // namespace fsdp

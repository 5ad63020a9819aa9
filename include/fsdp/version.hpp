// SPDX-License-Identifier: Apache-2.0
/// @file
/// The version of these headers. CMake refuses to configure when it is not project(VERSION).
#pragma once

#include <compare>
#include <string_view>

namespace fsdp {

/// Of the library. Before 1.0 a minor version may break.
struct Version {
  int major = 0;
  int minor = 0;
  int patch = 0;

  friend constexpr auto operator<=>(const Version&, const Version&) = default;
};

inline constexpr Version version{.major = 0, .minor = 2, .patch = 0};
inline constexpr std::string_view version_string = "0.2.0";

}  // namespace fsdp

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compile-time concatenation of names, for templates whose name includes those of their arguments.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace fsdp {

/// `Joined<A::name, B::name>::text` is the concatenation of the parts. The parts must be static members or namespace
/// variables.
template <const std::string_view&... parts>
class Joined {
  static constexpr std::size_t size = (parts.size() + ... + 0);
  static constexpr std::array<char, size> characters = [] {
    std::array<char, size> all{};
    auto end = all.begin();
    ((end = std::copy(parts.begin(), parts.end(), end)), ...);
    return all;
  }();

 public:
  static constexpr std::string_view text{characters.data(), size};
};

}  // namespace fsdp

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds numbers that are infinite or NaN.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace fsdp {

/// Returns whether a number is neither infinite nor NaN. It tests the bits, since std::isfinite may always return true
/// in a program that is compiled with -ffast-math or -Ofast.
constexpr bool is_finite(double value) { return (std::bit_cast<std::uint64_t>(value) >> 52 & 0x7ff) != 0x7ff; }

/// Returns the index of the first value that is infinite or NaN; -1 if there is none.
std::int64_t first_not_finite(std::span<const float> values);

}  // namespace fsdp

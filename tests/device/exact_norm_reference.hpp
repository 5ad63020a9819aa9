// SPDX-License-Identifier: Apache-2.0
/// @file
/// A reference of the exact norm with 128-bit integers, and tensors of all magnitudes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference.hpp"

namespace fsdp::device::reference {

/// The expected results of LargestMagnitude and FixedPointSquares, and the norm in extended precision.
struct ExactNorm {
  std::int64_t largest = 0;
  std::array<std::int64_t, 2> sum = {};
  double norm = 0;
};

inline std::int64_t bits_of_magnitude(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu; }

inline ExactNorm exact_reference(std::span<const float> x) {
  __extension__ using Wide = unsigned __int128;
  ExactNorm found;
  double largest = 0;
  for (const float value : x) {
    found.largest = std::max(found.largest, bits_of_magnitude(value));
    largest = std::max(largest, std::abs(static_cast<double>(value)));
  }
  const int exponent = largest == 0 ? -126 : std::max(std::ilogb(largest), -126);
  Wide sum = 0;
  long double squares = 0;
  for (const float value : x) {
    const auto whole = static_cast<std::int64_t>(std::nearbyint(std::ldexp(static_cast<double>(value), 29 - exponent)));
    sum += static_cast<Wide>(whole * whole);
    squares += static_cast<long double>(value) * static_cast<long double>(value);
  }
  found.sum = {static_cast<std::int64_t>(sum & 0xffffffffu), static_cast<std::int64_t>(sum >> 32)};
  found.norm = static_cast<double>(std::sqrt(squares));
  return found;
}

/// Largest relative error of an exact norm: the error of the fixed-point numbers, and a few roundings in double.
inline double exact_tolerance(std::size_t count) { return std::sqrt(static_cast<double>(count)) * 0x1p-30 + 0x1p-50; }

struct ExactCase {
  std::string words;
  std::vector<float> x;
};

/// Tensors of `count` >= 1 finite numbers.
inline std::vector<ExactCase> exact_cases(std::int64_t count) {
  std::vector<ExactCase> cases;
  const auto add = [&](const std::string& words, const auto& value) {
    std::vector<float> x(static_cast<std::size_t>(count));
    std::ranges::generate(x, [&, i = std::int64_t{0}]() mutable { return static_cast<float>(value(i++)); });
    cases.push_back({message(words, ", ", count, " elements"), std::move(x)});
  };
  add("usual", [](std::int64_t i) { return number_at(1, i); });
  add("tiny", [](std::int64_t i) { return 1e-30 * number_at(2, i); });
  add("huge", [](std::int64_t i) { return 1e30 * number_at(3, i); });
  add("subnormal", [](std::int64_t i) { return 1e-38 * number_at(4, i); });
  add("mixed", [](std::int64_t i) { return std::pow(10.0, 37 * number_at(5, i)) * number_at(6, i); });
  add("zeros", [](std::int64_t i) { return i % 2 == 0 ? 0.0 : -0.0; });
  add("the largest", [](std::int64_t i) { return (i % 2 == 0 ? 1 : -1) * 0x1.fffffep127; });
  add("below a power of two", [](std::int64_t i) { return 2 - static_cast<double>(2 * (i % 4096) + 1) * 0x1p-23; });
  add("the smallest", [](std::int64_t i) { return (i % 2 == 0 ? 1 : -1) * 0x1p-149; });
  // Ties: half units, whose lower neighbours are alternately even and odd.
  add("ties", [](std::int64_t i) { return i == 0 ? 1.0 : static_cast<double>(2 * (i % 1000) - 999) * 0x1p-30; });
  return cases;
}

}  // namespace fsdp::device::reference

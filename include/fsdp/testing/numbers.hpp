// SPDX-License-Identifier: Apache-2.0
/// @file
/// Numbers for tests, the same on every machine and in every run.
#pragma once

#include <cstdint>
#include <vector>

namespace fsdp::testing {

/// The elements of a tensor in float64, in row-major order.
using Numbers = std::vector<double>;

/// Returns a number in (-1, 1) that depends on `seed` and `index` only.
inline double number_at(std::uint64_t seed, std::int64_t index) {
  std::uint64_t bits = (seed + 1) * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(index) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((bits ^ (bits >> 31)) >> 11) / static_cast<double>(std::uint64_t{1} << 52) - 1.0;
}

}  // namespace fsdp::testing

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Integer arithmetic for sizes that throws on overflow, so that no overflowed size reaches an allocation.
#pragma once

#include <cstdint>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp {

/// Returns a + b. Throws InputError on overflow.
inline std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  require<InputError>(!__builtin_add_overflow(a, b, &sum), "size overflow: ", a, " + ", b);
  return sum;
}

/// Returns a * b. Throws InputError on overflow.
inline std::int64_t checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  require<InputError>(!__builtin_mul_overflow(a, b, &product), "size overflow: ", a, " x ", b);
  return product;
}

/// Returns a / b rounded up, for a >= 0 and b > 0.
constexpr std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }

/// Returns the smallest multiple of `step` that is at least `value`.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) { return ceil_divide(value, step) * step; }

}  // namespace fsdp

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Integer arithmetic for sizes: throws instead of wrapping, so that no wrong size ever reaches an allocation.
#pragma once

#include <cstdint>

#include <fsdp/core/error.hpp>

namespace fsdp {

/// a + b. Throws InputError where the sum does not fit.
inline std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  require<InputError>(!__builtin_add_overflow(a, b, &sum), "size overflow: ", a, " + ", b);
  return sum;
}

/// a * b. Throws InputError where the product does not fit.
inline std::int64_t checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  require<InputError>(!__builtin_mul_overflow(a, b, &product), "size overflow: ", a, " x ", b);
  return product;
}

/// a / b rounded up, for a >= 0 and b > 0.
constexpr std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }

/// The smallest multiple of `step` that is not below `value`.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) { return ceil_divide(value, step) * step; }

}  // namespace fsdp

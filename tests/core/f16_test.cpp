// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/dtype.hpp>

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include <gtest/gtest.h>

namespace fsdp {
namespace {

static_assert(f16(1.0f).bits == 0x3c00 && float(f16(-2.5f)) == -2.5f && f16(65504.0f).bits == 0x7bff);
static_assert(std::is_trivially_copyable_v<f16> && !std::is_convertible_v<float, f16>);

/// Value of an f16 bit pattern in double. The pattern after the largest finite one counts as 2^16, the value from which
/// rounding overflows.
double value_of_f16(std::uint32_t pattern) {
  const int exponent = static_cast<int>((pattern >> 10) & 31u);
  const double mantissa = pattern & 0x3ffu;
  return exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(F16, EveryBitPatternRoundTripsThroughFloat) {
  for (std::uint32_t pattern = 0; pattern < 0x7c00u; ++pattern)
    for (const std::uint32_t sign : {0u, 0x8000u}) {
      const auto bits = static_cast<std::uint16_t>(pattern | sign);
      const auto value = static_cast<float>(f16::from_bits(bits));
      EXPECT_EQ(std::abs(static_cast<double>(value)), value_of_f16(pattern));
      EXPECT_EQ(std::signbit(value), sign != 0);
      EXPECT_EQ(f16(value).bits, bits);
    }
}

TEST(F16, RoundsToNearestEven) {
  for (std::uint32_t pattern = 0; pattern < 0x7c00u; ++pattern) {
    const double low = value_of_f16(pattern), high = value_of_f16(pattern + 1), middle = (low + high) / 2;
    const auto even = static_cast<std::uint16_t>(pattern % 2 == 0 ? pattern : pattern + 1);
    EXPECT_EQ(f16(static_cast<float>(middle)).bits, even) << pattern;
    EXPECT_EQ(f16(std::nextafter(static_cast<float>(middle), 0.0f)).bits, pattern);
    EXPECT_EQ(f16(std::nextafter(static_cast<float>(middle), 1e9f)).bits, pattern + 1);
  }
}

TEST(F16, KeepsInfinitiesAndNaN) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f16(1e30f).bits, 0x7c00);
  EXPECT_EQ(f16(-infinity).bits, 0xfc00);
  EXPECT_EQ(static_cast<float>(f16::from_bits(0x7c00)), infinity);
  EXPECT_TRUE(std::isnan(static_cast<float>(f16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(static_cast<float>(f16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(f16(-0.0f).bits, 0x8000);
}

}  // namespace
}  // namespace fsdp

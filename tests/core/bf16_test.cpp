// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/dtype.hpp>

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace fsdp {
namespace {

static_assert(bf16(1.0f).bits == 0x3f80 && float(bf16(-2.5f)) == -2.5f);
static_assert(bf16::from_bits(0x4049).bits == 0x4049);
static_assert(std::is_trivially_copyable_v<bf16> && !std::is_convertible_v<float, bf16>);

constexpr std::uint32_t patterns = 1u << 16;

/// Value of a bf16 bit pattern in double. The pattern after the largest finite one counts as 2^128, the value from
/// which rounding overflows.
double value_of(std::uint32_t pattern) {
  const int exponent = static_cast<int>((pattern >> 7) & 0xffu);
  const double mantissa = pattern & 0x7fu;
  const double size = exponent == 0 ? std::ldexp(mantissa, -133) : std::ldexp(128 + mantissa, exponent - 134);
  return pattern & 0x8000u ? -size : size;
}

/// The bf16 pattern nearest to a finite float, with ties to even, found by distances in double, which are exact.
std::uint16_t nearest_bits(float value) {
  const std::uint32_t below = std::bit_cast<std::uint32_t>(value) >> 16;  // towards zero
  const std::uint32_t above = below + 1;                                  // away from zero
  const double to_below = std::abs(double{value} - value_of(below));
  const double to_above = std::abs(value_of(above) - double{value});
  const bool up = to_above < to_below || (to_above == to_below && below % 2 == 1);
  return static_cast<std::uint16_t>(up ? above : below);
}

TEST(Bf16, EveryBitPatternRoundTripsThroughFloat) {
  for (std::uint32_t pattern = 0; pattern < patterns; ++pattern) {
    const auto value = static_cast<float>(bf16::from_bits(static_cast<std::uint16_t>(pattern)));
    if (std::isnan(value)) continue;
    if (std::isfinite(value)) {
      ASSERT_EQ(double{value}, value_of(pattern)) << std::hex << pattern;
    }
    ASSERT_EQ(bf16(value).bits, pattern) << std::hex << pattern;
  }
}

TEST(Bf16, RoundsEveryBinadeToNearestEven) {
  for (std::uint32_t upper = 0; upper < patterns; ++upper) {
    for (const std::uint32_t lower :
         {0x0000u, 0x0001u, 0x1234u, 0x7fffu, 0x8000u, 0x8001u, 0xabcdu, 0xfffeu, 0xffffu}) {
      const auto value = std::bit_cast<float>((upper << 16) | lower);
      if (!std::isfinite(value)) continue;
      ASSERT_EQ(bf16(value).bits, nearest_bits(value)) << std::hex << upper << " " << lower;
    }
  }
}

TEST(Bf16, RoundsAllLow16BitsOfSomeFloats) {
  for (const std::uint32_t upper :
       {0x0000u, 0x0001u, 0x007fu, 0x0080u, 0x3f80u, 0x3f81u, 0x7f7eu, 0x7f7fu, 0x807fu, 0xff7fu}) {
    for (std::uint32_t lower = 0; lower < patterns; ++lower) {
      const auto value = std::bit_cast<float>((upper << 16) | lower);
      ASSERT_EQ(bf16(value).bits, nearest_bits(value)) << std::hex << upper << " " << lower;
    }
  }
}

TEST(Bf16, OverflowsToInfinityFromHalfAnUlpAboveTheLargest) {
  constexpr float largest = 0x1.fep127f;
  EXPECT_EQ(bf16(largest).bits, 0x7f7f);
  EXPECT_EQ(bf16(std::nextafter(0x1.ffp127f, 0.0f)).bits, 0x7f7f);
  EXPECT_EQ(bf16(0x1.ffp127f).bits, 0x7f80);
  EXPECT_EQ(bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(bf16(-std::numeric_limits<float>::max()).bits, 0xff80);
}

TEST(Bf16, PreservesInfinitiesAndSignedZeros) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(bf16(infinity).bits, 0x7f80);
  EXPECT_EQ(bf16(-infinity).bits, 0xff80);
  EXPECT_EQ(bf16(0.0f).bits, 0x0000);
  EXPECT_EQ(bf16(-0.0f).bits, 0x8000);
}

TEST(Bf16, EveryNanStaysNanWithItsSign) {
  for (const std::uint32_t sign : {0x00000000u, 0x80000000u}) {
    for (std::uint32_t mantissa = 1; mantissa < (1u << 23); mantissa += 127) {
      const bf16 value(std::bit_cast<float>(sign | 0x7f800000u | mantissa));
      ASSERT_TRUE(std::isnan(float{value})) << std::hex << mantissa;
      ASSERT_EQ(value.bits >> 15, sign >> 31);
    }
    const bf16 last(std::bit_cast<float>(sign | 0x7fffffffu));  // rounding it up would wrap around to zero
    EXPECT_TRUE(std::isnan(float{last}));
  }
}

}  // namespace
}  // namespace fsdp

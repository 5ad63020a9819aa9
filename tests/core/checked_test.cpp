// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/checked.hpp>

#include <limits>

#include <gtest/gtest.h>

#include <support/temporary_folder.hpp>

namespace fsdp {
namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t smallest = std::numeric_limits<std::int64_t>::min();

static_assert(ceil_divide(0, 4) == 0 && ceil_divide(1, 4) == 1 && ceil_divide(4, 4) == 1 && ceil_divide(5, 4) == 2);
static_assert(round_up(0, 64) == 0 && round_up(1, 64) == 64 && round_up(64, 64) == 64 && round_up(65, 64) == 128);

TEST(Checked, AddsUpToTheLargestInteger) {
  EXPECT_EQ(checked_add(2, 3), 5);
  EXPECT_EQ(checked_add(largest - 1, 1), largest);
  EXPECT_EQ(checked_add(smallest, largest), -1);
}

TEST(Checked, AddingThrowsOnOverflow) {
  EXPECT_THROW(checked_add(largest, 1), InputError);
  EXPECT_THROW(checked_add(smallest, -1), InputError);
}

TEST(Checked, MultipliesUpToTheLargestInteger) {
  EXPECT_EQ(checked_multiply(largest, 1), largest);
  EXPECT_EQ(checked_multiply(largest, 0), 0);
  EXPECT_EQ(checked_multiply(std::int64_t{1} << 31, std::int64_t{1} << 31), std::int64_t{1} << 62);
}

TEST(Checked, MultiplyingThrowsOnOverflowAndReportsTheFactors) {
  EXPECT_THROW(checked_multiply(smallest, -1), InputError);
  EXPECT_EQ(test::input_error_of([] { checked_multiply(std::int64_t{1} << 32, std::int64_t{1} << 31); }),
            "size overflow: 4294967296 x 2147483648");
}

}  // namespace
}  // namespace fsdp

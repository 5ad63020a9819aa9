// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/transfer.hpp>

#include <bit>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace fsdp::comm {
namespace {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

Contribution contribution_of(const std::vector<float>& values) {
  return {.data = reinterpret_cast<const std::byte*>(values.data())};
}

TEST(SumInOrder, RoundsAsBf16DoesForEveryKindOfFloat) {
  std::vector<float> values;
  for (std::uint64_t word = 0; word < (std::uint64_t{1} << 32); word += 65521)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(word)));
  for (std::uint32_t word : {0x7f800000u, 0xff800000u, 0x7f800001u, 0x7fffffffu, 0x3f808000u, 0x3f818000u})
    values.push_back(std::bit_cast<float>(word));
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<float> sum(values.size());
  std::vector<bf16> rounded(values.size());

  const Contribution one = contribution_of(values);
  sum_in_order({&one, 1}, DType::bf16, count, Write::overwrite, sum.data());
  round_to_bf16(values.data(), count, rounded.data());

  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(bits_of(sum[i]), bits_of(static_cast<float>(bf16(values[i])))) << bits_of(values[i]);
    ASSERT_EQ(rounded[i].bits, bf16(values[i]).bits) << bits_of(values[i]);
  }
}

TEST(SumInOrder, WritesLargeResultsAtAnyAlignment) {
  constexpr std::int64_t count = (1 << 20) + 5;  // large enough to be written past the caches
  const std::vector<float> ones(count, 1.0f);
  const std::vector<float> twos(count, 2.0f);
  const Contribution both[] = {contribution_of(ones), contribution_of(twos)};
  std::vector<float> sum(count + 2, -1.0f);

  sum_in_order(both, DType::f32, count, Write::overwrite, sum.data() + 1);
  EXPECT_EQ(sum.front(), -1.0f);
  EXPECT_EQ(sum.back(), -1.0f);
  for (std::int64_t i = 1; i <= count; ++i) ASSERT_EQ(sum[static_cast<std::size_t>(i)], 3.0f);

  sum_in_order(both, DType::f32, count, Write::accumulate, sum.data() + 1);
  EXPECT_EQ(sum[1], 6.0f);
  EXPECT_EQ(sum[count], 6.0f);
}

}  // namespace
}  // namespace fsdp::comm

// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/transfer.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/testing/values.hpp>

#include "src/comm/sum_loops.hpp"

namespace fsdp::comm {
namespace {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

Contribution contribution_of(const std::vector<float>& values) {
  return {.data = reinterpret_cast<const std::byte*>(values.data())};
}

/// Selects instruction sets, and restores the previous one at the end.
class InstructionSets {
 public:
  InstructionSets() = default;
  InstructionSets(const InstructionSets&) = delete;
  InstructionSets& operator=(const InstructionSets&) = delete;
  ~InstructionSets() { device::choose_instruction_set(before_); }

  /// Selects an instruction set. Returns whether the processor supports it.
  static bool choose(const std::string& name) {
    try {
      device::choose_instruction_set(name);
      return true;
    } catch (const InputError&) {
      return false;
    }
  }
  /// The default instruction set, and all for which there are separate loops.
  std::vector<std::string> names() const { return {before_, "baseline", "avx2", "avx512_bf16"}; }

 private:
  std::string before_{device::instruction_set()};
};

/// Random contributions of several ranks. With a bf16 wire type, every second one was rounded before it was sent.
struct Drawn {
  Drawn(int number, std::int64_t count, DType wire) {
    for (int rank = 0; rank < number; ++rank) {
      const testing::Floats drawn = testing::contributions(rank, static_cast<std::size_t>(count));
      exact.emplace_back(drawn.begin(), drawn.end());
      rounded.emplace_back(drawn.begin(), drawn.end());
    }
    for (int rank = 0; rank < number; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      if (wire == DType::bf16 && rank % 2 == 1)
        list.push_back({.data = reinterpret_cast<const std::byte*>(rounded[at].data()), .stored = DType::bf16});
      else
        list.push_back(contribution_of(exact[at]));
    }
  }
  std::vector<std::vector<float>> exact;
  std::vector<std::vector<bf16>> rounded;
  std::vector<Contribution> list;
};

/// Sums the contributions one element at a time; adds the sums to `before` if `write` accumulates.
std::vector<float> plain_sums(const Drawn& ranks, DType wire, Write write, const std::vector<float>& before) {
  std::vector<float> sums = before;
  for (std::size_t i = 0; i < sums.size(); ++i)
    for (std::size_t rank = 0; rank < ranks.exact.size(); ++rank) {
      const float own = wire == DType::bf16 ? static_cast<float>(ranks.rounded[rank][i]) : ranks.exact[rank][i];
      sums[i] = rank == 0 && write == Write::overwrite ? own : sums[i] + own;
    }
  return sums;
}

TEST(SumInOrder, RoundsEveryClassOfFloatAsBf16Does) {
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

  for (const auto& [value, summed, round] : ranges::views::zip(values, sum, rounded)) {
    ASSERT_EQ(bits_of(summed), bits_of(static_cast<float>(bf16(value)))) << bits_of(value);
    ASSERT_EQ(round.bits, bf16(value).bits) << bits_of(value);
  }
}

TEST(SumInOrder, WritesLargeResultsAtAnyAlignment) {
  constexpr std::int64_t count = (1 << 20) + 5;  // large enough for non-temporal stores
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

/// Checks sums in f32 and bf16, overwriting and accumulating, with every instruction set, by one thread and by two.
void expect_plain_sums(int number, std::int64_t count) {
  const InstructionSets sets;
  for (const DType wire : {DType::f32, DType::bf16})
    for (const Write write : {Write::overwrite, Write::accumulate}) {
      const Drawn ranks(number, count, wire);
      const testing::Floats there = testing::contributions(99, static_cast<std::size_t>(count));
      const std::vector<float> expected = plain_sums(ranks, wire, write, {there.begin(), there.end()});
      for (const std::string& set : sets.names())
        for (const int threads : {1, 2}) {
          if (!InstructionSets::choose(set)) continue;
          std::vector<float> sum(static_cast<std::size_t>(count) + 2, -1.0f);
          std::copy(there.begin(), there.end(), sum.begin() + 1);  // no vector is aligned to a register
          sum_in_order(ranks.list, wire, count, write, sum.data() + 1, threads);
          EXPECT_EQ(std::pair(sum.front(), sum.back()), std::pair(-1.0f, -1.0f));
          ASSERT_EQ(std::memcmp(sum.data() + 1, expected.data(), expected.size() * sizeof(float)), 0)
              << number << " contributions of " << count << " elements, wire " << name_of(wire)
              << (write == Write::accumulate ? ", added" : "") << ", " << set << ", " << threads << " threads";
        }
    }
}

TEST(SumInOrder, AddsContributionsOneAfterTheOther) {
  for (const std::int64_t count :
       {std::int64_t{1}, std::int64_t{7}, sum_block - 1, sum_block, sum_block + 1, 3 * sum_block + 9})
    for (const int number : {1, 2, 3, 4, 17}) expect_plain_sums(number, count);
}

/// Sums that overwrite use non-temporal stores here, and two threads.
TEST(SumInOrder, AddsContributionsOneAfterTheOtherAtFullSize) {
  for (const int number : {1, 2, 3}) expect_plain_sums(number, (1 << 20) + 5);
}

TEST(SumInOrder, MayOverwriteAContributionButNotAccumulateIntoIt) {
  constexpr std::int64_t count = 2 * sum_block + 3;
  for (const std::size_t own : {0u, 1u, 2u}) {
    Drawn ranks(3, count, DType::f32);
    const std::vector<float> expected =
        plain_sums(ranks, DType::f32, Write::overwrite, std::vector<float>(static_cast<std::size_t>(count)));
    sum_in_order(ranks.list, DType::f32, count, Write::overwrite, ranks.exact[own].data());
    EXPECT_EQ(ranks.exact[own], expected);
    EXPECT_THROW(sum_in_order(ranks.list, DType::f32, count, Write::accumulate, ranks.exact[own].data()), LogicError);
    sum_in_order(ranks.list, DType::f32, 0, Write::accumulate, ranks.exact[own].data());
  }
}

}  // namespace
}  // namespace fsdp::comm

// SPDX-License-Identifier: Apache-2.0
/// The exact norm is the same for any threads, instruction set, split of the tensor and distribution over ranks.
#include <cstring>

#include "exact_norm_reference.hpp"
#include "steps.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

constexpr float infinity = std::numeric_limits<float>::infinity();
const float nan = std::nanf("");

/// Calls body() under each instruction set of this processor.
template <class Body>
void for_instruction_sets(const Body& body) {
  const std::string before(instruction_set());
  for (const std::string name : {"baseline", "avx2", "avx512", "avx512_bf16", "neon"}) {
    try {
      choose_instruction_set(name);
    } catch (const InputError&) {
      continue;
    }
    SCOPED_TRACE(name);
    body();
  }
  choose_instruction_set(before);
}

Tensor<const float> tensor(std::span<const float> x) { return {x.data(), {std::ssize(x)}}; }

std::int64_t largest_of(Rank& rank, std::span<const float> x, std::int64_t largest = 0) {
  enqueue(rank.stream, LargestMagnitude{.x = tensor(x), .largest = {&largest, {1}}});
  return largest;
}

using Sum = std::array<std::int64_t, 2>;

Sum squares_of(Rank& rank, std::span<const float> x, const std::vector<std::int64_t>& largest, Sum sum = {}) {
  enqueue(
      rank.stream,
      FixedPointSquares{.x = tensor(x), .largest = {largest.data(), {std::ssize(largest)}}, .sum = {sum.data(), {2}}});
  return sum;
}

/// Cpu's decision for ranks with these largest magnitudes and sums, with zero losses and double-precision squares.
StepDecision decided(const std::vector<std::int64_t>& largest, const std::vector<Sum>& exact, double loss_scale = 1) {
  Rank rank(1);
  GatheredSums all{.sums = std::vector<double>(3 * largest.size()), .ranks = std::ssize(largest), .largest = largest};
  for (const Sum& sum : exact) all.exact.insert(all.exact.end(), sum.begin(), sum.end());
  return reference::decided(rank, {}, {.lr = 1, .loss_scale = loss_scale}, all);
}

/// The decision for a gradient whose element i belongs to rank owner(i).
template <class Owner>
StepDecision decided_over_ranks(std::span<const float> x, int ranks, const Owner& owner) {
  Rank rank(1);
  std::vector<std::vector<float>> shards(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; const float value : x) shards[static_cast<std::size_t>(owner(i++))].push_back(value);
  std::vector<std::int64_t> largest;
  std::vector<Sum> exact;
  for (const auto& shard : shards) largest.push_back(largest_of(rank, shard));
  for (const auto& shard : shards) exact.push_back(squares_of(rank, shard, largest));
  return decided(largest, exact);
}

TEST(LargestMagnitude, IsBitIdenticalForAnyThreadsAndInstructionSet) {
  for_instruction_sets([] {
    for (const std::int64_t count : {1, 3, 15, 16, 17, 257, 40000})
      for (const auto& [words, x] : exact_cases(count))
        for (const int threads : team_sizes()) {
          Rank rank(threads);
          EXPECT_EQ(largest_of(rank, x), exact_reference(x).largest) << words << ", threads " << threads;
        }
  });
}

TEST(LargestMagnitude, RaisesTheExistingMaximumAndPropagatesNonFiniteValues) {
  for_instruction_sets([] {
    Rank rank(1);
    std::vector<float> x(40, -0.0f);
    EXPECT_EQ(largest_of(rank, {}), 0);
    EXPECT_EQ(largest_of(rank, {}, 5), 5);
    EXPECT_EQ(largest_of(rank, x), 0);
    x[20] = -1.5f;
    EXPECT_EQ(largest_of(rank, x), bits_of_magnitude(1.5f));
    EXPECT_EQ(largest_of(rank, x, bits_of_magnitude(2.0f)), bits_of_magnitude(2.0f));
    for (const std::size_t at : {0, 21, 39}) {
      auto bad = x;
      bad[at] = -infinity;
      EXPECT_EQ(largest_of(rank, bad), infinity_bits);
      for (const float found : {nan, -nan, std::bit_cast<float>(0x7f800001u)}) {  // the last is a signalling one
        bad[at] = found;
        EXPECT_GT(largest_of(rank, bad), infinity_bits);
      }
    }
  });
}

TEST(FixedPointSquares, MatchTheReferenceForAnyThreadsAndInstructionSet) {
  for_instruction_sets([] {
    for (const std::int64_t count : {1, 3, 15, 16, 17, 257, 16384, 16385, 40000})
      for (const auto& [words, x] : exact_cases(count)) {
        const ExactNorm expected = exact_reference(x);
        for (const int threads : team_sizes()) {
          Rank rank(threads);
          EXPECT_EQ(squares_of(rank, x, {0, expected.largest}), expected.sum) << words << ", threads " << threads;
        }
      }
  });
}

TEST(FixedPointSquares, AreTheSameForAnySplitOfTheTensor) {
  for (const auto& [words, x] : exact_cases(40000)) {
    const ExactNorm expected = exact_reference(x);
    for (const std::uint64_t seed : {1, 2, 3}) {
      Rank rank(2);
      Sum sum = {};
      std::int64_t largest = 0;
      for (std::size_t begin = 0, part = 0; begin < x.size(); ++part) {
        const double length = std::pow(10.0, 2.3 + 2 * number_at(seed, static_cast<std::int64_t>(part)));
        const std::size_t end = std::min(begin + static_cast<std::size_t>(length), x.size());
        const auto piece = std::span(x).subspan(begin, end - begin);
        largest = largest_of(rank, piece, largest);
        sum = squares_of(rank, piece, {expected.largest}, sum);
        begin = end;
      }
      EXPECT_EQ(largest, expected.largest) << words;
      EXPECT_EQ(sum, expected.sum) << words;
    }
  }
}

TEST(FixedPointSquares, AreScaledByTheLargestMagnitudeOfAllRanks) {
  Rank rank(1);
  const std::vector<float> x = {1.0f, 0x1p-29f, 0x1p-30f, 0x1.8p-29f, 0x1p-40f};
  const std::int64_t one = bits_of_magnitude(1.0f);
  // The elements round to 2^29, 1, a tie to 0, a tie to 2, and 0.
  constexpr std::int64_t squares = (std::int64_t{1} << 58) + 1 + 0 + 4;
  EXPECT_EQ(squares_of(rank, x, {one}), (Sum{squares & 0xffffffff, squares >> 32}));
  EXPECT_EQ(squares_of(rank, x, {0, bits_of_magnitude(1.75f), one, 3}), (Sum{squares & 0xffffffff, squares >> 32}));
  constexpr std::int64_t halved = (std::int64_t{1} << 56) + 0 + 0 + 1;
  EXPECT_EQ(squares_of(rank, x, {bits_of_magnitude(2.0f)}), (Sum{halved & 0xffffffff, halved >> 32}));
}

TEST(FixedPointSquares, CarryFromTheLowWordToTheHighWord) {
  Rank rank(1);
  const std::vector<float> one = {1.0f}, unit = {1.0f, 0x1p-29f};
  const std::vector<std::int64_t> largest = {bits_of_magnitude(1.0f)};
  constexpr std::int64_t most = 0xffffffff, room = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(squares_of(rank, one, largest, {most, 5}), (Sum{most, 5 + (1 << 26)}));
  EXPECT_EQ(squares_of(rank, unit, largest, {most, 5}), (Sum{0, 6 + (1 << 26)}));
  EXPECT_EQ(squares_of(rank, unit, largest, {most, room - 1 - (1 << 26)}), (Sum{0, room}));
}

TEST(FixedPointSquares, OfANonFiniteTensorAddNothing) {
  Rank rank(1);
  const std::vector<float> x = {1, infinity, 2, nan};
  for (const std::int64_t largest : {infinity_bits, bits_of_magnitude(nan)})
    EXPECT_EQ(squares_of(rank, x, {bits_of_magnitude(2.0f), largest}, {7, 8}), (Sum{7, 8}));
  EXPECT_EQ(squares_of(rank, {}, {bits_of_magnitude(2.0f)}, {7, 8}), (Sum{7, 8}));
}

TEST(ExactNorm, IsWithinItsErrorBoundAndTheSameForAnyRanks) {
  for (const std::int64_t count : {1, 17, 1000, 20000})
    for (const ExactCase& one : exact_cases(count)) {
      const auto& x = one.x;
      const double expected = exact_reference(x).norm;
      const double norm = decided_over_ranks(x, 1, [](std::size_t) { return 0; }).norm;
      EXPECT_LE(std::abs(norm - expected), exact_tolerance(x.size()) * expected) << one.words;
      for (const int ranks : {2, 3, 4, 7}) {
        const auto each = static_cast<std::size_t>(ranks);
        const double in_turn = decided_over_ranks(x, ranks, [&](std::size_t i) { return i % each; }).norm;
        const double in_ranges =  // the last range may be empty
            decided_over_ranks(x, ranks, [&](std::size_t i) { return i / (x.size() / each + 1); }).norm;
        const double at_random = decided_over_ranks(x, ranks, [&](std::size_t i) {
                                   return (number_at(9, static_cast<std::int64_t>(i)) + 1) / 2 * ranks;
                                 }).norm;
        for (const double found : {in_turn, in_ranges, at_random})
          EXPECT_EQ(std::memcmp(&found, &norm, sizeof norm), 0) << one.words << ", ranks " << ranks << ": " << found;
      }
    }
}

TEST(ExactNorm, OfExactlyRepresentableSquaresIsExact) {
  const std::vector<float> x = {3, -4};
  EXPECT_EQ(decided_over_ranks(x, 2, [](std::size_t i) { return i; }).norm, 5);
  const std::int64_t largest = bits_of_magnitude(4.0f);
  Rank rank(1);
  const Sum sum = squares_of(rank, x, {largest});
  EXPECT_EQ(decided({largest}, {sum}, 8).norm, 5.0 / 8);  // unscaled
  EXPECT_EQ(decided({0}, {Sum{}}).norm, 0);
  EXPECT_EQ(decided({1}, {Sum{0, 1 << 20}}).norm, std::ldexp(1.0, 26 - 126 - 29));  // for a subnormal
}

TEST(ExactNorm, AddsRanksIn128Bits) {
  __extension__ using Wide = unsigned __int128;
  constexpr std::int64_t room = std::numeric_limits<std::int64_t>::max();
  const std::vector<Sum> sums = {{0xffffffff, room}, {0xfffffffe, room - 12345}, {1, room}, {0xffffffff, 0}, {0, 1}};
  std::vector<Sum> first;
  Wide total = 0;
  for (const Sum& sum : sums) {
    first.push_back(sum);
    total += (static_cast<Wide>(sum[1]) << 32) + static_cast<Wide>(sum[0]);
    const auto expected = static_cast<double>(std::sqrt(static_cast<long double>(total))) * 0x1p-29;
    const double found = decided(std::vector<std::int64_t>(first.size(), bits_of_magnitude(1.5f)), first).norm;
    EXPECT_NEAR(found / expected, 1, 0x1p-50);
  }
}

TEST(ExactNorm, PropagatesNonFiniteValues) {
  std::vector<float> x(50, 1.0f);
  x[17] = infinity;
  const auto owner = [](std::size_t i) { return i % 3; };
  StepDecision step = decided_over_ranks(x, 3, owner);
  EXPECT_EQ(step.norm, std::numeric_limits<double>::infinity());
  EXPECT_EQ(step.skipped, 1);
  EXPECT_EQ(step.stopped, 1);
  x[30] = -nan;
  step = decided_over_ranks(x, 3, owner);
  EXPECT_TRUE(std::isnan(step.norm));
  EXPECT_EQ(step.skipped, 1);
}

TEST(FixedPointSquares, AreScaledByAColumnOfLargestMagnitudes) {
  Rank rank(1);
  const std::vector<float> x = {0.5f, -0.25f, 0.75f};
  const std::vector<std::int64_t> all = {7, 0, 0x42000000, 7, 0x3f800000, 0};  // [ranks, 3]
  Sum sum{};
  enqueue(rank.stream, FixedPointSquares{.x = tensor(x),
                                         .largest = Tensor<const std::int64_t>(all.data(), {2, 3}).slice_columns(1, 2),
                                         .sum = {sum.data(), {2}}});
  EXPECT_EQ(sum, squares_of(rank, x, {0, 0x3f800000}));
  EXPECT_NE(sum, squares_of(rank, x, {7, 0x42000000}));
}

/// Two ranks with two norms each: checks the decision for either norm.
TEST(ExactNorm, OfSeparateGradientsUsesOnlyTheirSums) {
  const std::vector<std::int64_t> largest = {0x3f800000, 0x43000000, 0x40000000, 0};
  const std::vector<std::int64_t> exact = {1, 2, 3, 1 << 20, 5, 6, 0, 7};
  for (const std::size_t n : {0, 1}) {
    Rank rank(1);
    const StepDecision step =
        reference::decided(rank, {.norm = static_cast<std::int64_t>(n), .apart = 1}, {.lr = 1, .loss_scale = 4},
                           {.sums = std::vector<double>(8), .ranks = 2, .largest = largest, .exact = exact});
    EXPECT_EQ(step.norm, decided({largest[n], largest[2 + n]},
                                 {{exact[2 * n], exact[2 * n + 1]}, {exact[4 + 2 * n], exact[5 + 2 * n]}}, 4)
                             .norm);
  }
}

TEST(ExactNorm, NeedsTheSumsOfAllRanks) {
  Rank rank(1);
  const StepInputs inputs;
  StepDecision step;
  const std::vector<double> sums(6);
  const std::vector<std::int64_t> numbers(6);
  const auto decide = [&](std::int64_t largest, const Shape& exact) {
    enqueue(rank.stream, DecideStep{.inputs = {&inputs, {1}},
                                    .sums = {sums.data(), {3, 2}},
                                    .largest = {numbers.data(), {largest}},
                                    .exact = {numbers.data(), exact},
                                    .step = {&step, {1}}});
  };
  decide(3, {3, 2});
  decide(0, {0, 2});
  EXPECT_THROW(decide(3, {2, 2}), LogicError);
  EXPECT_THROW(decide(2, {3, 2}), LogicError);
  EXPECT_THROW(decide(0, {3, 2}), LogicError);
  EXPECT_THROW(decide(3, {0, 2}), LogicError);
}

}  // namespace
}  // namespace fsdp::device

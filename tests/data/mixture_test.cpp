// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/sampler.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace fsdp::data {
namespace {

TEST(Mixture, OfAnyFirstWindowsEachSourceHasItsShare) {
  const std::vector<Mixture::Source> sources = {{.weight = 0.7, .windows = 50},
                                                {.weight = 0.2, .windows = 1000},
                                                {.weight = 0.07, .windows = 3},
                                                {.weight = 0.03, .windows = 7}};
  const Mixture mixture(5, sources);
  std::vector<double> counts(sources.size());
  for (std::int64_t n = 0; n < 20000; ++n) {
    const Mixture::Window drawn = mixture(n);
    ASSERT_LT(drawn.window, sources[drawn.source].windows);
    ++counts[drawn.source];
    for (std::size_t i = 0; i < sources.size(); ++i)
      ASSERT_LE(std::abs(counts[i] - sources[i].weight * static_cast<double>(n + 1)), 4) << n << " source " << i;
  }
}

TEST(Mixture, EachSourceIsReadWholeBeforeItIsReadAgainInAnotherOrder) {
  const Mixture mixture(5, {{.weight = 3, .windows = 20}, {.weight = 1, .windows = 5}});
  std::array<std::vector<std::int64_t>, 2> read;
  for (std::int64_t n = 0; n < 160; ++n) read[mixture(n).source].push_back(mixture(n).window);
  ASSERT_EQ(read[0].size(), 120u);
  for (std::size_t pass = 0; pass < 6; ++pass) {
    const auto begin = read[0].begin() + static_cast<std::ptrdiff_t>(20 * pass);
    EXPECT_EQ(std::set<std::int64_t>(begin, begin + 20).size(), 20u);
  }
  EXPECT_FALSE(std::equal(read[0].begin(), read[0].begin() + 20, read[0].begin() + 20));
}

TEST(Mixture, DependsOnTheSeedAndTheWeightsAlone) {
  const std::vector<Mixture::Source> sources = {{.weight = 1, .windows = 40}, {.weight = 1, .windows = 40}};
  const Mixture one(1, sources), same(1, sources), other(2, sources);
  int equal = 0;
  for (std::int64_t n = 0; n < 80; ++n) {
    EXPECT_EQ(one(n), same(n));
    equal += one(n) == other(n);
  }
  EXPECT_LT(equal, 20);
  EXPECT_LT(one(std::int64_t{1} << 50).window, 40);
}

}  // namespace
}  // namespace fsdp::data

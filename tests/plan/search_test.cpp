// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/plan/search.hpp>

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/zip.hpp>

namespace fsdp::plan {
namespace {

using Table = std::vector<std::pair<Turned, Outcome>>;

/// Families with random times and bytes. A higher level of a knob never reduces the time and never increases the bytes.
struct RandomWays {
  std::vector<Family> families;
  std::vector<Table> ways;
  std::vector<std::set<Turned>> asked;

  explicit RandomWays(unsigned seed) : asked(12) {
    std::mt19937 random(seed);
    const auto number = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
    std::vector<double> fastest;
    for (std::size_t family = 0; family < 12; ++family) {
      Family one{.levels = {number(1, 4), number(1, 4), number(1, 2)}};
      if (family > 0 && number(0, 1) == 1)
        one.after = static_cast<std::size_t>(number(0, static_cast<int>(family) - 1));
      const double begin = one.after ? fastest[*one.after] + number(0, 5) : number(1, 40);
      fastest.push_back(begin);
      add(one, begin, number(0, 300), number);
      families.push_back(std::move(one));
    }
  }

  /// The cost of a knob's level does not depend on the levels of the other knobs.
  template <class Number>
  void add(const Family& family, double seconds, std::int64_t bytes, const Number& number) {
    std::vector<std::vector<std::pair<double, std::int64_t>>> knobs;
    for (const int levels : family.levels) {
      std::vector<std::pair<double, std::int64_t>> knob{{0, 0}};
      for (int level = 1; level < levels; ++level)
        knob.emplace_back(knob.back().first + number(0, knobs.empty() ? 9 : 2), knob.back().second + number(0, 60));
      knobs.push_back(std::move(knob));
    }
    Table table;
    for (int a = 0; a < family.levels[0]; ++a)
      for (int b = 0; b < family.levels[1]; ++b)
        for (int c = 0; c < family.levels[2]; ++c) {
          Outcome outcome{.seconds = seconds, .missing = bytes};
          const int levels[] = {a, b, c};
          for (std::size_t knob = 0; knob < 3; ++knob) {
            outcome.seconds += knobs[knob][static_cast<std::size_t>(levels[knob])].first;
            outcome.missing -= knobs[knob][static_cast<std::size_t>(levels[knob])].second;
          }
          table.emplace_back(Turned{a, b, c}, outcome);
        }
    ways.push_back(std::move(table));
  }

  const Outcome& of(std::size_t family, const Turned& turned) const {
    return std::ranges::find(ways[family], turned, &Table::value_type::first)->second;
  }
  Outcome ask(std::size_t family, const Turned& turned) {
    EXPECT_TRUE(asked[family].insert(turned).second) << "asked twice";
    return of(family, turned);
  }

  /// The least time of a configuration that fits; infinity if no configuration fits.
  double fastest(std::size_t family) const {
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [turned, outcome] : ways[family])
      if (outcome.fits()) least = std::min(least, outcome.seconds);
    return least;
  }
};

TEST(Search, FindsTheFastestFittingConfigurationsAndWhyOthersLose) {
  std::int64_t asked = 0, ways = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomWays random(seed);
    const SearchResult found = search(
        random.families, 3, [&](std::size_t family, const Turned& turned) { return random.ask(family, turned); });
    std::vector<double> fastest;
    for (std::size_t family = 0; family < random.families.size(); ++family) {
      const double least = random.fastest(family);
      if (least < std::numeric_limits<double>::infinity()) fastest.push_back(least);
      ways += static_cast<std::int64_t>(random.ways[family].size());
    }
    std::ranges::sort(fastest);
    fastest.resize(std::min<std::size_t>(3, fastest.size()));
    ASSERT_EQ(found.best.size(), fastest.size());
    for (const auto& [way, seconds] : ranges::views::zip(found.best, fastest)) EXPECT_EQ(way.outcome.seconds, seconds);

    ASSERT_EQ(found.fates.size(), random.families.size());
    for (const auto& [family, its_fate] : ranges::views::enumerate(found.fates)) {
      const auto& [fate, of] = its_fate;
      EXPECT_EQ(of.family, family);
      if (fate == SearchOutcome::fits) {
        EXPECT_EQ(of.outcome.seconds, random.fastest(family));
      }
      if (fate == SearchOutcome::too_large) {
        EXPECT_EQ(random.fastest(family), std::numeric_limits<double>::infinity());
      }
      if (fate == SearchOutcome::slower) {
        EXPECT_EQ(found.best.size(), 3u);
        EXPECT_LE(of.outcome.seconds, random.fastest(family));
        EXPECT_GE(of.outcome.seconds, fastest.back());
      }
    }
    asked += found.asked;
  }
  EXPECT_LT(asked, ways / 3) << "of " << ways;
}

TEST(Search, DoesNotEvaluateConfigurationsThatCannotWin) {
  const std::vector<Family> families = {{.levels = {4, 4}}, {.levels = {4, 4}}, {.levels = {4, 4}}};
  const auto ask = [](std::size_t family, const Turned& turned) -> Outcome {
    const int all = turned[0] + turned[1];
    return {.seconds = static_cast<double>(10 * family + 1) + all, .missing = family == 0 ? 100 - all : 3 - all};
  };
  const SearchResult found = search(families, 1, ask);
  ASSERT_EQ(found.best.size(), 1u);
  EXPECT_EQ(found.best[0].family, 1u);
  EXPECT_EQ(found.best[0].outcome.seconds, 14);
  EXPECT_EQ(found.fates[0].fate, SearchOutcome::too_large);
  EXPECT_EQ(found.fates[0].asked.outcome.missing, 94);
  EXPECT_EQ(found.fates[2].fate, SearchOutcome::slower);
  EXPECT_EQ(found.fates[2].asked.outcome.seconds, 21);
}

TEST(Search, ContinuesPastRefusedConfigurations) {
  const std::vector<Family> families = {{.levels = {3}}, {.levels = {1}, .after = 0}, {.levels = {3}}};
  const auto ask = [](std::size_t family, const Turned& turned) -> Outcome {
    if (family == 0) return {.refused = "heads of 3"};
    if (turned[0] == 1) return {.refused = "a level"};
    return {.seconds = 1.0 + turned[0], .missing = 1 - turned[0]};
  };
  const SearchResult found = search(families, 3, ask);
  ASSERT_EQ(found.best.size(), 1u);
  EXPECT_EQ(found.best[0].family, 2u);
  EXPECT_EQ(found.best[0].turned, Turned{2});
  EXPECT_EQ(found.fates[0].fate, SearchOutcome::refused);
  EXPECT_EQ(found.fates[0].asked.outcome.refused, "heads of 3");
  EXPECT_EQ(found.fates[1].fate, SearchOutcome::too_large);
}

}  // namespace
}  // namespace fsdp::plan

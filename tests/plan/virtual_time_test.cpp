// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/plan/virtual_time.hpp>

#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::plan {
namespace {

constexpr ByLink whole_network = {0, 1, 0};
constexpr ByLink half_network = {0, 0.5, 0};

TEST(VirtualTime, WorksOfATrackFollowEachOtherAndOthersRunBesideThem) {
  const std::vector<Work> works = {{.track = 0, .seconds = 2}, {.track = 1, .seconds = 3}, {.track = 0, .seconds = 1}};

  EXPECT_EQ(spans_of(works), (std::vector<Span>{{0, 2}, {0, 3}, {2, 3}}));
}

TEST(VirtualTime, AWorkBeginsBehindTheLastOfThoseItWaitsForAndNamesIt) {
  const std::vector<Work> works = {{.track = 1, .seconds = 2},
                                   {.track = 2, .seconds = 5},
                                   {.track = 0, .seconds = 1},
                                   {.track = 0, .after = {0, 1}, .seconds = 1},
                                   {.track = 0, .after = {0}, .seconds = 1}};

  EXPECT_EQ(spans_of(works), (std::vector<Span>{{0, 2}, {0, 5}, {0, 1}, {5, 6, 1}, {6, 7}}));
}

TEST(VirtualTime, TwoTransfersOnOneLinkTakeTwiceAsLongWhileBothAreUnderWay) {
  const std::vector<Work> works = {{.track = 1, .transfer = 1, .demand = whole_network},
                                   {.track = 2, .transfer = 3, .demand = whole_network}};

  EXPECT_EQ(spans_of(works), (std::vector<Span>{{0, 2}, {0, 4}})) << "after 2 s the second has done 1 of 3";
}

TEST(VirtualTime, TransfersThatFitBesideEachOtherAreAsFastAsAlone) {
  const std::vector<Work> works = {{.track = 1, .transfer = 2, .demand = half_network},
                                   {.track = 2, .transfer = 3, .demand = half_network}};

  EXPECT_EQ(spans_of(works), (std::vector<Span>{{0, 2}, {0, 3}}));
}

TEST(VirtualTime, TransfersOnDifferentLinksDoNotMeet) {
  const std::vector<Work> works = {{.track = 1, .transfer = 2, .demand = {1, 0, 0}},
                                   {.track = 2, .transfer = 2, .demand = {0, 1, 0}},
                                   {.track = 3, .transfer = 2, .demand = {0, 0, 1}}};

  EXPECT_EQ(spans_of(works), (std::vector<Span>{{0, 2}, {0, 2}, {0, 2}}));
}

TEST(VirtualTime, SecondsThatPassSlowerBesideTransfersDoSoOnlyMeanwhile) {
  const std::vector<Work> works = {{.track = 0, .seconds = 3, .beside = 0.5},
                                   {.track = 1, .seconds = 1, .transfer = 2, .demand = whole_network},
                                   {.track = 2, .seconds = 3}};

  EXPECT_EQ(spans_of(works), (std::vector<Span>{{0, 4}, {0, 3}, {0, 3}}))
      << "1 s alone, 1 of the 2 s of the transfer, 1 s alone; latency slows nothing";
}

TEST(VirtualTime, CopiesToTheHostSlowNothing) {
  const std::vector<Work> works = {{.track = 0, .seconds = 2, .beside = 0.5},
                                   {.track = 1, .transfer = 2, .demand = {0, 0, 1}}};

  EXPECT_EQ(spans_of(works), (std::vector<Span>{{0, 2}, {0, 2}}));
}

TEST(VirtualTime, LatencyTakesNoLink) {
  const std::vector<Work> works = {{.track = 1, .seconds = 1, .transfer = 1, .demand = whole_network},
                                   {.track = 2, .transfer = 1, .demand = whole_network}};

  EXPECT_EQ(spans_of(works), (std::vector<Span>{{0, 2}, {0, 1}}));
}

TEST(VirtualTime, WorksThatTakeNoTimeKeepTheOrder) {
  const std::vector<Work> works = {{.track = 0, .seconds = 1}, {.track = 1, .after = {0}}, {.track = 0, .after = {1}}};

  const std::vector<Span> spans = spans_of(works);

  EXPECT_EQ(spans[1].begin, 1);
  EXPECT_EQ(spans[2].end, 1);
}

TEST(VirtualTime, IsTheSameEveryTime) {
  std::vector<Work> works;
  for (int i = 0; i < 3000; ++i)
    works.push_back({.track = i % 5,
                     .after = i > 7 ? std::vector<int>{i - 7} : std::vector<int>{},
                     .seconds = 1e-3 * (i % 11),
                     .transfer = 1e-3 * (i % 13),
                     .demand = {0.1 * (i % 7), 0.2 * (i % 5), 0}});

  EXPECT_EQ(spans_of(works), spans_of(works));
}

TEST(VirtualTime, RefusesAWorkThatWaitsForItself) {
  const std::vector<Work> works = {{.track = 0, .after = {0}, .seconds = 1}};
  EXPECT_THROW(spans_of(works), LogicError);
}

}  // namespace
}  // namespace fsdp::plan

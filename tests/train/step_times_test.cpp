// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/queued_steps.hpp>

#include <atomic>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>

namespace fsdp::train {
namespace {

TEST(StepMeter, AveragesTheGivenStepTimes) {
  StepMeter meter;
  EXPECT_FALSE(meter.mean());
  meter.add({.all = 1});
  EXPECT_EQ(meter.mean()->all, 1);
  EXPECT_FALSE(meter.mean()->collectives) << "a device with queues";
  StepMeter seen;
  seen.add({.all = 1, .collectives = 0.5});
  seen.add({.all = 3, .collectives = 0.25});
  EXPECT_EQ(seen.mean()->all, 2);
  EXPECT_EQ(*seen.mean()->collectives, 0.375);
}

/// The straggler that all ranks find if each step takes 1 s, with the given seconds of computation per rank.
std::optional<report::Straggler> straggler_of(const std::vector<double>& computing) {
  std::optional<report::Straggler> found;
  std::atomic<int> finders{0};
  const int status = comm::Threads<>::run(static_cast<int>(computing.size()), {}, [&](comm::Threads<>& rank) {
    const double own = computing[static_cast<std::size_t>(rank.rank())];
    const auto straggling = straggler(rank, report::StepTimes{.all = 1, .collectives = 1 - own});
    if (straggling) ++finders;
    if (rank.rank() == 0) found = straggling;
    return 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(finders, found ? static_cast<int>(computing.size()) : 0);
  return found;
}

TEST(Straggler, IsARankThatComputes25PercentLongerThanTheMedian) {
  const std::optional<report::Straggler> slow = straggler_of({0.5, 0.5, 0.75, 0.5});
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->rank, 2);
  EXPECT_DOUBLE_EQ(slow->ratio, 1.5);
  EXPECT_FALSE(straggler_of({0.5, 0.6, 0.5}));
  EXPECT_FALSE(straggler_of({0.9}));
  EXPECT_EQ(straggler_of({0.5, 0.75})->rank, 1) << "of two ranks the faster is the median";
}

TEST(Straggler, IsAbsentIfNoStepWasTimed) {
  comm::Threads<>::run(2, {}, [](comm::Threads<>& rank) {
    EXPECT_FALSE(straggler(rank, std::nullopt));
    EXPECT_FALSE(straggler(rank, report::StepTimes{.all = 1}));
    return 0;
  });
}

}  // namespace
}  // namespace fsdp::train

// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/learning_rate.hpp>

#include <gtest/gtest.h>

namespace fsdp::train {
namespace {

TEST(LrAt, ConstantIsThePeakToTheBit) {
  const LrSchedule schedule{.peak = 1e-3, .steps = 20};
  for (std::int64_t step = 0; step < 25; ++step) EXPECT_EQ(lr_at(schedule, step), 1e-3);
}

TEST(LrAt, WarmsUpLinearlyAndReachesThePeak) {
  const LrSchedule schedule{.peak = 2.0, .warmup = 4, .steps = 20};
  EXPECT_EQ(lr_at(schedule, 0), 0.5);
  EXPECT_EQ(lr_at(schedule, 1), 1.0);
  EXPECT_EQ(lr_at(schedule, 3), 2.0);
  EXPECT_EQ(lr_at(schedule, 4), 2.0);
}

TEST(LrAt, CosineFallsToATenthAtTheLastStep) {
  const LrSchedule schedule{.shape = LrShape::cosine, .peak = 1.0, .warmup = 10, .steps = 111};
  EXPECT_EQ(lr_at(schedule, 10), 1.0);
  EXPECT_NEAR(lr_at(schedule, 60), 0.55, 1e-12);
  EXPECT_EQ(lr_at(schedule, 110), 0.1);
  EXPECT_EQ(lr_at(schedule, 500), 0.1);
  for (std::int64_t step = 10; step < 110; ++step) EXPECT_GT(lr_at(schedule, step), lr_at(schedule, step + 1));
}

TEST(LrAt, DegenerateRunsStillHaveARate) {
  EXPECT_EQ(lr_at({.shape = LrShape::cosine, .peak = 1.0, .steps = 1}, 0), 1.0);
  EXPECT_EQ(lr_at({.shape = LrShape::cosine, .peak = 1.0, .warmup = 5, .steps = 5}, 4), 1.0);
  EXPECT_EQ(lr_at({.shape = LrShape::cosine, .peak = 1.0, .warmup = 100, .steps = 5}, 4), 0.05);
}

}  // namespace
}  // namespace fsdp::train

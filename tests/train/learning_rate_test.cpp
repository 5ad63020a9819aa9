// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/learning_rate.hpp>

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

TEST(LrAt, LinearFallsByTheSameAmountToATenthAtTheLastStep) {
  const LrSchedule schedule{.shape = LrShape::linear, .peak = 1.0, .warmup = 10, .steps = 111};
  EXPECT_EQ(lr_at(schedule, 4), 0.5);
  EXPECT_EQ(lr_at(schedule, 10), 1.0);
  EXPECT_NEAR(lr_at(schedule, 60), 0.55, 1e-12);
  EXPECT_EQ(lr_at(schedule, 110), 0.1);
  EXPECT_EQ(lr_at(schedule, 500), 0.1);
  for (std::int64_t step = 10; step < 110; ++step)
    EXPECT_NEAR(lr_at(schedule, step) - lr_at(schedule, step + 1), 0.009, 1e-12);
}

TEST(LrAt, WsdWarmsUpStaysAtThePeakAndFallsInTheLastSteps) {
  const LrSchedule schedule{.shape = LrShape::wsd, .peak = 1.0, .warmup = 10, .steps = 111, .decay = 30};
  EXPECT_EQ(lr_at(schedule, 4), 0.5);
  for (std::int64_t step = 9; step <= 80; ++step) EXPECT_EQ(lr_at(schedule, step), 1.0);
  for (std::int64_t step = 81; step < 111; ++step)
    EXPECT_NEAR(lr_at(schedule, step), 1.0 - 0.03 * static_cast<double>(step - 80), 1e-12);
  EXPECT_EQ(lr_at(schedule, 110), 0.1);
  EXPECT_EQ(lr_at(schedule, 500), 0.1);
}

TEST(LrAt, WsdFallsInATenthOfTheRunUnlessToldOtherwise) {
  const LrSchedule schedule{.shape = LrShape::wsd, .peak = 1.0, .steps = 100};
  EXPECT_EQ(lr_at(schedule, 89), 1.0);
  EXPECT_NEAR(lr_at(schedule, 90), 0.91, 1e-12);
  EXPECT_EQ(lr_at(schedule, 99), 0.1);
}

TEST(LrAt, WsdThatNeverStaysIsLinear) {
  const LrSchedule linear{.shape = LrShape::linear, .peak = 0.3, .warmup = 3, .steps = 20};
  LrSchedule wsd = linear;
  wsd.shape = LrShape::wsd;
  wsd.decay = 17;
  for (std::int64_t step = 0; step < 25; ++step) EXPECT_EQ(lr_at(wsd, step), lr_at(linear, step));
}

TEST(LrAt, DegenerateRunsStillHaveARate) {
  for (const LrShape shape : {LrShape::linear, LrShape::wsd}) {
    EXPECT_EQ(lr_at({.shape = shape, .peak = 1.0, .steps = 1}, 0), 1.0);
    EXPECT_EQ(lr_at({.shape = shape, .peak = 1.0, .warmup = 5, .steps = 5}, 4), 1.0);
    EXPECT_EQ(lr_at({.shape = shape, .peak = 1.0, .warmup = 100, .steps = 5}, 4), 0.05);
    EXPECT_EQ(lr_at({.shape = shape, .peak = 1.0, .warmup = 4, .steps = 5}, 4), 1.0);
    EXPECT_EQ(lr_at({.shape = shape, .peak = 1.0, .steps = 2}, 1), 0.1);
  }
  EXPECT_EQ(lr_at({.shape = LrShape::cosine, .peak = 1.0, .steps = 1}, 0), 1.0);
  EXPECT_EQ(lr_at({.shape = LrShape::cosine, .peak = 1.0, .warmup = 5, .steps = 5}, 4), 1.0);
  EXPECT_EQ(lr_at({.shape = LrShape::cosine, .peak = 1.0, .warmup = 100, .steps = 5}, 4), 0.05);
}

}  // namespace
}  // namespace fsdp::train

// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/precision/policies.hpp>

#include <cmath>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp {
namespace {

TEST(LossScale, HalvesOnOverflowAndDoublesAfter2000FiniteSteps) {
  DynamicLossScale scale;
  EXPECT_EQ(scale.scale(), 65536);
  scale.update(false, scale.scale());
  EXPECT_EQ(scale.scale(), 32768);
  for (int step = 0; step < 1999; ++step) scale.update(true, scale.scale());
  EXPECT_EQ(scale.scale(), 32768);
  scale.update(true, scale.scale());
  EXPECT_EQ(scale.scale(), 65536);
  for (int step = 0; step < 1999; ++step) scale.update(true, scale.scale());
  scale.update(false, scale.scale());
  EXPECT_EQ(scale.state(), (DynamicLossScale::State{.scale = 32768, .sound_steps = 0}));
}

TEST(LossScale, HalvesOnceForConsecutiveOverflowsOfOneScale) {
  DynamicLossScale scale;
  scale.update(false, 65536);
  scale.update(false, 65536);
  EXPECT_EQ(scale.scale(), 32768);
  scale.update(true, 32768);
  EXPECT_EQ(scale.state().sound_steps, 1);
}

TEST(LossScale, StaysWithinItsBoundsAndStopsIfTheSmallestOverflows) {
  DynamicLossScale large({.scale = 0x1p100, .sound_steps = 1999});
  large.update(true, large.scale());
  EXPECT_EQ(large.scale(), 0x1p100);
  DynamicLossScale small({.scale = 0x1p-23, .sound_steps = 0});
  small.update(false, small.scale());
  EXPECT_THROW(small.update(false, small.scale()), Error);
}

TEST(LossScale, UnscalesInFloatWithoutRounding) {
  for (const double scale : {DynamicLossScale::smallest, DynamicLossScale::largest})
    EXPECT_TRUE(std::isnormal(static_cast<float>(scale)) && std::isnormal(static_cast<float>(1 / scale))) << scale;
}

TEST(LossScale, IsAPowerOfTwo) {
  for (const double scale : {0.0, -2.0, 3.0, 0x1p-25, 0x1p101, 65535.0})
    EXPECT_THROW(DynamicLossScale({.scale = scale, .sound_steps = 0}), InputError) << scale;
}

}  // namespace
}  // namespace fsdp

// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/sampling.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include <fsdp/core/error.hpp>

namespace fsdp::train {
namespace {

TEST(Sample, TakesTheLikeliestOrThatWhichTheDrawFallsOn) {
  const std::array<float, 3> logits = {0.0f, std::log(2.0f), 0.0f};  // 1/4, 1/2, 1/4
  EXPECT_EQ(sample(logits, 0, 0.99), 1);
  EXPECT_EQ(sample(logits, 1, 0.2), 0);
  EXPECT_EQ(sample(logits, 1, 0.3), 1);
  EXPECT_EQ(sample(logits, 1, 0.8), 2);
}

TEST(Sample, LogitsThatAreNotFiniteAreAnError) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()})
    for (const double temperature : {0.0, 1.0}) {
      const std::array<float, 3> logits = {1, bad, 2};
      EXPECT_THROW(sample(logits, temperature, 0.5), Error);
      const std::array<bf16, 2> rounded = {bf16(1.0f), bf16(bad)};
      EXPECT_THROW(sample(rounded, temperature, 0.5), Error);
    }
}

}  // namespace
}  // namespace fsdp::train

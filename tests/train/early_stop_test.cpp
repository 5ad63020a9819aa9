// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/early_stop.hpp>

#include <gtest/gtest.h>

namespace fsdp::train {
namespace {

TEST(EarlyStop, IsDueAfterSoManyLossesThatAreNoLower) {
  EarlyStop stop(2);
  EXPECT_TRUE(stop.improves(3, 1));
  EXPECT_FALSE(stop.improves(3, 2));  // as low is no lower
  EXPECT_TRUE(stop.improves(2, 3));
  EXPECT_FALSE(stop.improves(4, 4));
  EXPECT_FALSE(stop.due());
  EXPECT_FALSE(stop.improves(2.5, 5));
  EXPECT_TRUE(stop.due());
  EXPECT_EQ(stop.best(), (checkpoint::BestLoss{.loss = 2, .step = 3, .worse = 2}));
}

TEST(EarlyStop, GoesOnFromACheckpointAndCountsItsStepOnce) {
  EarlyStop stop(1);
  stop.restore(checkpoint::BestLoss{.loss = 2, .step = 3});
  EXPECT_FALSE(stop.improves(2, 3));
  EXPECT_FALSE(stop.due());
  EXPECT_FALSE(stop.improves(2, 4));
  EXPECT_TRUE(stop.due());
}

TEST(EarlyStop, ComparesNothingWithoutPatience) {
  EarlyStop stop(0);
  stop.restore(checkpoint::BestLoss{.loss = 2, .step = 3});
  EXPECT_FALSE(stop.improves(1, 4));
  EXPECT_FALSE(stop.due());
  EXPECT_EQ(stop.best(), std::nullopt);
}

}  // namespace
}  // namespace fsdp::train

// SPDX-License-Identifier: Apache-2.0
#include <comm/signals.hpp>

#include <csignal>

#include <gtest/gtest.h>

namespace fsdp::comm {
namespace {

TEST(CatchSignals, RemembersWhatCameWhileOneLives) {
  {
    const CatchSignals signals, of_another_rank;
    EXPECT_EQ(signals.asked(), Asked{});
    std::raise(SIGUSR1);
    std::raise(SIGUSR1);
    EXPECT_EQ(signals.asked(), (Asked{.stop = 0, .saves = 2}));
    std::raise(SIGINT);
    EXPECT_EQ(of_another_rank.asked(), (Asked{.stop = SIGINT, .saves = 2}));
  }
  const CatchSignals fresh;
  EXPECT_EQ(fresh.asked(), Asked{});
}

TEST(CatchSignalsDeathTest, ASecondSignalEndsAtOnce) {
  EXPECT_EXIT(
      {
        const CatchSignals signals;
        std::raise(SIGTERM);
        std::raise(SIGINT);
      },
      ::testing::ExitedWithCode(128 + SIGINT), "");
}

TEST(CatchSignalsDeathTest, AfterTheLastOneASignalDoesWhatItDidBefore) {
  EXPECT_EXIT(
      {
        { const CatchSignals signals; }
        std::raise(SIGTERM);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace fsdp::comm

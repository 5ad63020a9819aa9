// SPDX-License-Identifier: Apache-2.0
#include "src/comm/launch/process_end.hpp"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace fsdp::comm {
namespace {

using std::chrono::milliseconds;

TEST(WatchdogDeathTest, EndsAProcessThatHangsAndReportsWhere) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        const Watchdog watch("rank 2, MPI_Finalize,", milliseconds(50));
        std::this_thread::sleep_for(std::chrono::seconds(20));
      },
      ::testing::ExitedWithCode(3),
      "^tessera: rank 2, MPI_Finalize, waited 0.050 s for the other ranks; the deadline is 0.050 s");
}

TEST(Watchdog, DoesNothingIfTheCallReturns) {
  for (int i = 0; i < 100; ++i) const Watchdog watch("a call", std::chrono::hours(1));
  const Watchdog watch("a call", milliseconds::max());
  std::this_thread::sleep_for(milliseconds(20));
}

}  // namespace
}  // namespace fsdp::comm

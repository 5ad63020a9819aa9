// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <unistd.h>

#include <gtest/gtest.h>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/mpi.hpp>
#include <tessera/fsdp/testing/exchange_behaviours.hpp>

#include <support/errors.hpp>
#include "mpi_world.hpp"
#include "src/comm/mpi_windows.hpp"

namespace fsdp::comm {
namespace {

/// The last rank's call throws "bad record 17". The others get an error that contains `part` at once, and the world
/// stays usable.
void expect_told(Mpi<>& world, std::string_view part, const std::function<void(int last)>& call) {
  const int last = world.size() - 1;
  const auto begin = std::chrono::steady_clock::now();
  if (world.rank() == last) {
    EXPECT_EQ(test::error_of([&] { call(last); }), "bad record 17");
  } else {
    test::expect_parts(test::error_of<CollectiveError>([&] { call(last); }),
                       {part, message("rank ", last, " failed: an exception ended it")});
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  barrier(world);
}

/// One rank of a sub-communicator throws: its other ranks get an error, and the world stays usable.
TEST(MpiFailing, ARankThatThrowsInASubCommunicatorIsReportedAtOnce) {
  Mpi<>& world = mpi_world();
  if (world.size() == 1) return;
  expect_told(world, "barrier of step", [&](int last) {
    Mpi<> part = split(world, [](int) { return 0; });
    part.monitor().options.deadline = std::chrono::seconds(30);
    barrier(part);
    if (world.rank() == last) throw std::runtime_error("bad record 17");
    barrier(part, {.what = "step"});
  });
}

/// Exchanges through windows and by messages; a failing rank leaves its messages half sent.
TEST(MpiFailing, ARankThatThrowsDuringAnExchangeIsReportedAtOnce) {
  using namespace testing;
  Mpi<>& world = mpi_world();
  if (world.size() == 1) return;
  for (const bool windows : {true, false}) {
    SCOPED_TRACE(windows ? "windows" : "messages");
    expect_told(world, "", [&](int last) {
      world.monitor().options.windows = windows;
      Mpi<> part = split(world, [](int) { return 0; });
      world.monitor().options.windows = true;
      part.monitor().options.deadline = std::chrono::seconds(30);
      if (windows) ValueMemory::shared = [&part](std::int64_t bytes) { return shared_memory(part, bytes); };
      ExchangedValues<float> values(part.rank(), part.size(), 1 << 15);
      ValueMemory::shared = nullptr;
      auto pending = all_to_all(part, values.list(), {.what = "heads"});
      if (world.rank() == last) throw std::runtime_error("bad record 17");
      pending.wait();
      barrier(part);
    });
  }
}

/// All ranks report the failure of the first rank that noticed it: no rank waits for one that has given up.
TEST(MpiFailing, AFailureReachesRanksThatWaitForAnotherRank) {
  Mpi<>& world = mpi_world();
  if (world.size() < 3) return;
  const auto begin = std::chrono::steady_clock::now();
  {
    Mpi<> part = split(world, [](int) { return 0; });
    part.monitor().options.deadline = std::chrono::milliseconds(part.rank() == 0 ? 200 : 30'000);
    if (part.rank() != part.size() - 1) {  // the last rank never arrives; only rank 0 has a short deadline
      const std::string told = test::error_of<CollectiveError>([&] { barrier(part); });
      test::expect_parts(told, {message("for rank ", part.size() - 1, " (has not come")});
      if (part.rank() != 0) test::expect_parts(told, {"rank 0 failed: waited 0.2"});
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  barrier(world);
}

TEST(MpiFailing, NestedSplitsKeepTheirMessagesSeparate) {
  Mpi<>& world = mpi_world();
  for (int round = 0; round < 50; ++round) {
    Mpi<> half = split(world, [](int rank) { return rank % 2; });
    Mpi<> same = split(half, [](int) { return 0; });
    const double mine = world.rank() + 1;
    double of_half = 0;
    for (int rank = world.rank() % 2; rank < world.size(); rank += 2) of_half += rank + 1;
    EXPECT_EQ(sum_over_ranks(same, mine), of_half);
    EXPECT_EQ(sum_over_ranks(half, 2 * mine), 2 * of_half);
    EXPECT_EQ(same.monitor().world_rank_of(0), world.rank() % 2);
  }
}

TEST(MpiWindows, ReportWhyAPeersMemoryCannotBeRead) {
  constexpr std::int64_t nobody = 0x7fffff00;  // larger than any process ID
  EXPECT_EQ(unreadable(3, nobody, true, "open"), message("rank 3 is gone: its process ", nobody, " has ended"));
  EXPECT_EQ(unreadable(3, nobody, false, "open"), message("rank 3 is gone: its process ", nobody, " has ended"));
  EXPECT_EQ(unreadable(3, getpid(), true, "open"),
            "rank 3 has freed the memory that was to be read: it has failed or left");
  EXPECT_EQ(unreadable(3, getpid(), false, "open /proc/1/fd/2: Permission denied"),
            "cannot read the memory of rank 3 (open /proc/1/fd/2: Permission denied); switch shared windows off");
}

}  // namespace
}  // namespace fsdp::comm

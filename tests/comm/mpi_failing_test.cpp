// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <stdexcept>
#include <string>

#include <unistd.h>

#include <gtest/gtest.h>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/mpi.hpp>
#include <tessera/fsdp/testing/exchange_behaviours.hpp>

#include "mpi_world.hpp"
#include "src/comm/mpi_windows.hpp"

namespace fsdp::comm {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// One rank of a part throws; the part's other ranks are told, and the world goes on.
TEST(MpiFailing, APartsRankThatThrowsIsNamedAtOnceAndTheWorldGoesOn) {
  Mpi<>& world = mpi_world();
  if (world.size() == 1) return;
  const int last = world.size() - 1;
  const auto begin = std::chrono::steady_clock::now();
  try {
    Mpi<> part = split(world, [](int) { return 0; });
    part.monitor().options.deadline = std::chrono::seconds(30);
    barrier(part);
    if (world.rank() == last) throw std::runtime_error("bad record 17");
    barrier(part, {.what = "step"});
    ADD_FAILURE() << "a barrier without rank " << last;
  } catch (const CollectiveError& error) {
    EXPECT_TRUE(contains(error.what(), "barrier of step")) << error.what();
    EXPECT_TRUE(contains(error.what(), message("rank ", last, " failed: an exception ended it"))) << error.what();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "bad record 17");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  barrier(world);
}

/// By windows and by messages, which a rank that fails leaves half sent.
TEST(MpiFailing, ARankThatThrowsDuringAnExchangeIsNamedAtOnceAndTheWorldGoesOn) {
  using namespace testing;
  Mpi<>& world = mpi_world();
  if (world.size() == 1) return;
  const int last = world.size() - 1;
  for (const bool windows : {true, false}) {
    SCOPED_TRACE(windows ? "windows" : "messages");
    const auto begin = std::chrono::steady_clock::now();
    try {
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
      ADD_FAILURE() << "collectives without rank " << last;
    } catch (const CollectiveError& error) {
      EXPECT_TRUE(contains(error.what(), message("rank ", last, " failed: an exception ended it"))) << error.what();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "bad record 17");
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    barrier(world);
  }
}

/// What the first rank to notice tells is what all say: nobody waits for somebody who has given up.
TEST(MpiFailing, AFailureReachesRanksThatWaitForAnotherOne) {
  Mpi<>& world = mpi_world();
  if (world.size() < 3) return;
  const auto begin = std::chrono::steady_clock::now();
  {
    Mpi<> part = split(world, [](int) { return 0; });
    part.monitor().options.deadline = std::chrono::milliseconds(part.rank() == 0 ? 200 : 30'000);
    if (part.rank() != part.size() - 1) {  // the last one stays away: rank 0 alone is impatient
      try {
        barrier(part);
        ADD_FAILURE() << "a barrier without the last rank";
      } catch (const CollectiveError& error) {
        EXPECT_TRUE(contains(error.what(), message("for rank ", part.size() - 1, " (has not come"))) << error.what();
        if (part.rank() != 0) {
          EXPECT_TRUE(contains(error.what(), "rank 0 failed: waited 0.2")) << error.what();
        }
      }
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  barrier(world);
}

TEST(MpiFailing, ManySplitsAndSplitsOfSplitsKeepTheirMessagesApart) {
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

TEST(MpiWindows, SayWhyThePeersMemoryCannotBeRead) {
  constexpr std::int64_t nobody = 0x7fffff00;  // more than any process has
  EXPECT_EQ(unreadable(3, nobody, true, "open"), message("rank 3 is gone: its process ", nobody, " has ended"));
  EXPECT_EQ(unreadable(3, nobody, false, "open"), message("rank 3 is gone: its process ", nobody, " has ended"));
  EXPECT_EQ(unreadable(3, getpid(), true, "open"),
            "rank 3 has freed the memory that was to be read: it has failed or left");
  EXPECT_EQ(unreadable(3, getpid(), false, "open /proc/1/fd/2: Permission denied"),
            "cannot read the memory of rank 3 (open /proc/1/fd/2: Permission denied); switch shared windows off");
}

}  // namespace
}  // namespace fsdp::comm

// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/step_timing.hpp>

#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/host_copy.hpp>

namespace fsdp::train {
namespace {

TEST(MedianSeconds, IsOfTheSlowestRankAndTheSameOnAll) {
  constexpr int ranks = 3, warm_ups = 2;
  std::vector<double> seconds(ranks);
  std::vector<int> calls(ranks);
  const int status = comm::Threads<>::run(ranks, {}, [&](comm::Threads<>& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    seconds[rank] = median_seconds(communicator, {.warm_ups = warm_ups}, [&] {
      ++calls[rank];
      std::this_thread::sleep_for(std::chrono::milliseconds(rank == 1 ? 40 : 0));
    });
    return 0;
  });

  EXPECT_EQ(status, 0);
  EXPECT_EQ(calls, std::vector<int>(ranks, warm_ups + 3));
  EXPECT_GE(seconds[0], 0.04);
  EXPECT_EQ(seconds, std::vector<double>(ranks, seconds[0]));
}

TEST(MedianSeconds, LeavesOutOneSlowStep) {
  double seconds = 0;
  int calls = 0;
  const int status = comm::Threads<>::run(1, {}, [&](comm::Threads<>& communicator) {
    seconds = median_seconds(communicator, {},
                             [&] { std::this_thread::sleep_for(std::chrono::milliseconds(++calls <= 2 ? 400 : 1)); });
    return 0;
  });

  EXPECT_EQ(status, 0);
  EXPECT_LT(seconds, 0.3);
}

TEST(MedianSeconds, EndsOnAllRanksOnceTheStepsOfOneTookLongEnough) {
  std::vector<int> calls(2);
  const int status = comm::Threads<>::run(2, {}, [&](comm::Threads<>& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    static_cast<void>(median_seconds(communicator, {.warm_ups = 0, .steps = 100, .most_seconds = 0.05}, [&] {
      ++calls[rank];
      std::this_thread::sleep_for(std::chrono::milliseconds(rank == 1 ? 30 : 0));
    }));
    return 0;
  });

  EXPECT_EQ(status, 0);
  EXPECT_EQ(calls, std::vector<int>(2, calls[0]));
  EXPECT_LE(calls[0], 2);
}

TEST(MemoryThatLacks, IsToldToAllRanksWhereOneHasTooLittle) {
  std::vector<std::string> told(3), none(3);
  const int status = comm::Threads<>::run(3, {}, [&](comm::Threads<>& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    none[rank] = memory_that_lacks(communicator, [] {});
    told[rank] = memory_that_lacks(communicator, [&] {
      if (rank == 2) throw MemoryError("no 8 bytes");
    });
    return 0;
  });

  EXPECT_EQ(status, 0);
  EXPECT_EQ(none, std::vector<std::string>(3, ""));
  EXPECT_EQ(told, std::vector<std::string>(3, "no 8 bytes"));
}

TEST(MemoryThatLacks, LeavesOtherErrorsAlone) {
  EXPECT_THROW(static_cast<void>(comm::Threads<>::run(1, {},
                                                      [](comm::Threads<>& communicator) {
                                                        static_cast<void>(memory_that_lacks(
                                                            communicator, [] { throw InputError("no model"); }));
                                                        return 0;
                                                      })),
               InputError);
}

TEST(RandomBatches, HaveTheRightShapeAndTokensOfTheVocabulary) {
  const RandomBatches batches(2, 8, 5, 3, 1, device::host_memory<device::Cpu>);

  ASSERT_EQ(batches.micro_batches().size(), 3);
  std::set<std::int32_t> seen;
  for (const TokenBatch& batch : batches.micro_batches()) {
    EXPECT_EQ(batch.sequences, 2);
    ASSERT_EQ(batch.tokens.numel(), 16);
    EXPECT_NO_THROW(batch.validate(8, 5));
    for (int i = 0; i + 1 < 16; ++i) EXPECT_EQ(batch.targets.data()[i], batch.tokens.data()[i + 1]);
    seen.insert(batch.tokens.data(), batch.tokens.data() + 16);
  }
  EXPECT_EQ(seen.size(), 5);
  EXPECT_EQ(batches.counts(0, 1).valid_targets, 48);
  EXPECT_EQ(batches.counts(0, 2).valid_targets + batches.counts(1, 2).valid_targets, 48);
}

}  // namespace
}  // namespace fsdp::train

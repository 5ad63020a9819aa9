// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/threads.hpp>

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <filesystem>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <range/v3/view/enumerate.hpp>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/poll.hpp>
#include <tessera/fsdp/testing/communicator.hpp>

#include <support/errors.hpp>
#include <support/sanitizer.hpp>

#include "host_sums.hpp"

namespace fsdp::comm {
namespace {

using std::chrono::milliseconds;

/// A deadline that ends a broken test early; a passing test never waits that long.
const Options patient{.deadline = std::chrono::seconds(20)};

/// Calls f(rank) on `ranks` threads of this test. Returns the message of each rank's exception; empty if it threw none.
std::vector<std::string> on_own_threads(int ranks, const std::function<void(int)>& f) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (const auto& [rank, error] : ranges::views::enumerate(errors))
    threads.emplace_back(
        [&f, &error = error, rank = static_cast<int>(rank)] { error = test::error_of([&] { f(rank); }); });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(ThreadRanks, DefaultToTenMinutesDeadlineAndOneThread) {
  ThreadRanks usual(1);
  const auto c = usual.join(0);
  EXPECT_EQ(c.monitor().options.deadline, std::chrono::minutes(10));
  EXPECT_EQ(c.monitor().options.threads, 1);
  ThreadRanks own(1, {.deadline = milliseconds(7), .threads = 3});
  const auto other = own.join(0);
  EXPECT_EQ(other.monitor().options.deadline, milliseconds(7));
  EXPECT_EQ(other.monitor().options.threads, 3);
}

TEST(DeadlineAfter, SaturatesAtTheMaximumOfTheClock) {
  using Time = std::chrono::steady_clock::time_point;
  const Time now = std::chrono::steady_clock::now();
  EXPECT_EQ(deadline_after(now, milliseconds(5)), now + milliseconds(5));
  EXPECT_EQ(deadline_after(now, milliseconds(9'000'000'000'000)), now + milliseconds(9'000'000'000'000));
  for (const std::int64_t count : {9'223'372'036'854, 9'223'372'036'855, 31'536'000'000'000, 9'223'372'036'854'775'807})
    EXPECT_EQ(deadline_after(now, milliseconds(count)), Time::max()) << count;
  for (const milliseconds none : {milliseconds(0), milliseconds(-7), milliseconds::min()})
    EXPECT_EQ(deadline_after(now, none), now);
}

TEST(ThreadRanks, WaitForeverIfTheDeadlineIsTheMaximum) {
  ThreadRanks ranks(2, {.deadline = milliseconds::max(), .device_deadline = milliseconds::max()});
  const auto errors = on_own_threads(2, [&](int rank) {
    auto c = ranks.join(rank);
    for (int i = 0; i < 3; ++i) {
      if (rank == 1) std::this_thread::sleep_for(milliseconds(5));
      barrier(c);
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(ThreadRanks, RefuseToJoinTwice) {
  for (const int none : {0, -1, 65'537, 1 << 30}) EXPECT_THROW(ThreadRanks{none}, InputError) << none;
  ThreadRanks ranks(2);
  EXPECT_EQ(ranks.size(), 2);
  const auto c = ranks.join(1);
  EXPECT_EQ(c.rank(), 1);
  EXPECT_THROW(ranks.join(1), InputError);
  EXPECT_THROW(ranks.join(2), InputError);
  EXPECT_THROW(ranks.join(-1), InputError);
}

TEST(ThreadRanks, AreBitIdenticalToThreadsStartedByTheLibrary) {
  test::HostSums started, own;
  Threads<>::run(3, {}, [&](Threads<>& c) {
    const test::HostSums mine = test::host_sums(c);
    if (c.rank() == 1) started = mine;
  });
  ThreadRanks ranks(3);
  const auto errors = on_own_threads(3, [&](int rank) {
    auto c = ranks.join(rank);
    const test::HostSums mine = test::host_sums(c);
    if (rank == 1) own = mine;
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
  EXPECT_EQ(started, own);
}

TEST(ThreadRanks, AFailureDoesNotDisturbAnotherWorld) {
  ThreadRanks failing(2, patient), sound(2, patient);
  std::atomic<int> failed = 0;
  std::vector<std::string> seen(2);
  const auto errors = on_own_threads(4, [&](int thread) {
    const int rank = thread % 2;
    if (thread < 2) {
      auto c = failing.join(rank);
      barrier(c);
      if (rank == 1) {
        ++failed;
        throw std::runtime_error("bad record 17");
      }
      seen[0] = test::error_of<CollectiveError>([&] { barrier(c); });
      ++failed;
      return;
    }
    auto c = sound.join(rank);
    const auto least = [&](std::int64_t mine) {
      reduce(c, std::span(&mine, 1), Reduction::min);
      return mine;
    };
    while (least(failed.load()) < 2) continue;
    for (int more = 0; more < 100; ++more) barrier(c);
    EXPECT_EQ(sum_over_ranks(c, 1.0), 2.0);
  });
  EXPECT_EQ(errors, (std::vector<std::string>{"", "bad record 17", "", ""}));
  test::expect_parts(seen[0], {"rank 1 failed: an exception ended it"});
}

TEST(ThreadRanks, AnExceptionOnARankEndsCollectivesOfTheOthersAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  ThreadRanks ranks(3, patient);
  const auto errors = on_own_threads(3, [&](int rank) {
    auto c = ranks.join(rank);
    auto part = split(c, [](int) { return 0; });
    std::vector<float> values(3 << 16);
    const std::vector<std::int64_t> counts(3, 1 << 16);
    const std::vector<Segment<float>> segments{
        {.local = values.data() + (std::int64_t{rank} << 16), .full = values.data(), .counts = counts}};
    auto gather = all_gather(part, segments);
    if (rank == 1) throw std::runtime_error("bad record 17");
    gather.wait();
    barrier(c);
  });
  EXPECT_LT(seconds_since(begin), 5.0);
  EXPECT_EQ(errors[1], "bad record 17");
  for (const int rank : {0, 2})
    test::expect_parts(errors[static_cast<std::size_t>(rank)], {"rank 1 failed: an exception ended it"});
}

TEST(ThreadRanks, ARankWhoseThreadReturnsIsReportedByFail) {
  ThreadRanks ranks(2, patient);
  const auto errors = on_own_threads(2, [&](int rank) {
    if (rank == 1) return ranks.fail(1, "the host stopped it");  // this rank never joins
    auto c = ranks.join(rank);
    barrier(c, {.what = "step"});
  });
  test::expect_parts(errors[0], {"barrier of step", "rank 1 failed: the host stopped it"});
}

TEST(ThreadRanks, RefuseToFailARankOutOfRange) {
  ThreadRanks ranks(2, patient);
  for (const int rank : {-1, 2, 99}) {
    EXPECT_THROW(ranks.fail(rank, "the host stopped it"), InputError) << rank;
    EXPECT_THROW(ranks.join(rank), InputError) << rank;
  }
  for (const auto& error : on_own_threads(2, [&](int rank) {
         auto c = ranks.join(rank);
         barrier(c);
       }))
    EXPECT_EQ(error, "");
}

TEST(ThreadRanks, CanBeRecreatedAfterAFailure) {
  for (int round = 0; round < 20; ++round) {
    ThreadRanks ranks(2, patient);
    const auto errors = on_own_threads(2, [&](int rank) {
      auto c = ranks.join(rank);
      if (round % 2 == 0 && rank == round / 2 % 2) throw std::runtime_error("fails");
      barrier(c);
    });
    EXPECT_EQ(errors[0].empty() && errors[1].empty(), round % 2 == 1) << errors[0] << errors[1];
  }
}

/// Returns the current number of threads of this process.
std::ptrdiff_t threads_now() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

/// Returns the number of threads that a large gather and sum add to the process, if the host program's own parallel
/// regions use four.
std::ptrdiff_t added_threads(const Options& options) {
  std::ptrdiff_t added = 0;
  ThreadRanks ranks(1, options);
  const auto errors = on_own_threads(1, [&](int) {
    omp_set_num_threads(4);
    auto c = ranks.join(0);
    std::vector<float> full(1 << 20), local(1 << 20);
    const std::vector<std::int64_t> counts{1 << 20};
    const std::vector<Segment<float>> segments{{.local = local.data(), .full = full.data(), .counts = counts}};
    const std::ptrdiff_t before = threads_now();
    all_gather(c, segments).wait();
    reduce_scatter<float>(c, segments, Write::overwrite).wait();
    added = threads_now() - before;
    EXPECT_EQ(omp_get_max_threads(), 4);
  });
  EXPECT_EQ(errors, std::vector<std::string>(1));
  return added;
}

TEST(ThreadRanks, UseThreadsOfTheOptionsWithoutChangingOpenMpSettings) {
  if (test::thread_sanitizer) GTEST_SKIP() << "OMP_THREAD_LIMIT is 1 there";
#ifdef __clang__
  GTEST_SKIP() << "LLVM's OpenMP lends the threads that others have made";
#endif
  EXPECT_EQ(added_threads({}), 0);
  EXPECT_EQ(added_threads({.threads = 3}), 2);
}

/// Ranks on threads of the host program, in the interface of the conformance kit.
struct OwnThreads {
  template <class F>
  static int run(int count, const Options& options, F f) {
    Options bounded = options;
    bounded.deadline = std::min(options.deadline, patient.deadline);
    ThreadRanks ranks(count, bounded);
    std::vector<std::exception_ptr> errors(static_cast<std::size_t>(count));
    std::atomic<int> first = -1;
    on_own_threads(count, [&](int rank) {
      try {
        auto c = ranks.join(rank);
        f(c);
      } catch (const std::exception&) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
        int none = -1;
        first.compare_exchange_strong(none, rank);
      }
    });
    for (const std::exception_ptr& error : errors) {
      try {
        if (error) std::rethrow_exception(error);
      } catch (const CollectiveError&) {  // the error of the other ranks
      }
    }
    if (first >= 0) std::rethrow_exception(errors[static_cast<std::size_t>(first.load())]);
    return 0;
  }
};

}  // namespace
}  // namespace fsdp::comm

namespace fsdp::testing {

INSTANTIATE_TYPED_TEST_SUITE_P(ThreadRanks, CommunicatorFaults, comm::OwnThreads);

}  // namespace fsdp::testing

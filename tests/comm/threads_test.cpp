// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/threads.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <tessera/comm/collectives.hpp>

#include <support/errors.hpp>
#include <support/sanitizer.hpp>

namespace fsdp::comm {
namespace {

using std::chrono::milliseconds;
using Counts = std::vector<std::int64_t>;

const Options impatient{.deadline = milliseconds(100)};

/// Returns the message of the CollectiveError of `call`; empty if it throws none.
template <class Call>
std::string failure_of(Call call) {
  return test::error_of<CollectiveError>(call);
}

TEST(Threads, ReturnTheNonzeroStatusOfTheLowestRank) {
  EXPECT_EQ(Threads<>::run(3, {}, [](auto& c) { return c.rank() == 0 ? 0 : 10 + c.rank(); }), 11);
  EXPECT_EQ(Threads<>::run(2, {}, [](auto& c) { barrier(c); }), 0);
  EXPECT_THROW(Threads<>::run(0, {}, [](auto&) {}), InputError);
}

/// Properties that apply to every communicator, and other faults, are tested by CommunicatorFaults in
/// communicator_test.cpp.
TEST(Threads, MissedDeadlineReportsItsLengthAndTheMissingRank) {
  std::atomic<bool> done = false;
  const std::string text = failure_of([&] {
    Threads<>::run(2, impatient, [&](auto& c) {
      while (c.rank() == 1 && !done) std::this_thread::sleep_for(milliseconds(1));
      const std::string seen = failure_of([&] { barrier(c, {.what = "step", .unit = 4}); });
      test::expect_parts(seen, {"barrier of step, unit 4 (u8, 0 elements, sequence 0), after "});
      done = true;
      throw CollectiveError(seen);
    });
  });
  test::expect_parts(text, {"for rank 1 (has not come)", "deadline is 0.100 s"});
}

TEST(Threads, DoNotWaitForARankThatHasReturned) {
  const std::string text = failure_of([] {
    Threads<>::run(2, {}, [](auto& c) {
      if (c.rank() == 0) barrier(c);
    });
  });
  test::expect_parts(text, {"rank 1 has ended"});
}

TEST(Threads, ExchangesOfMismatchedLengthsAreAnErrorEvenWithoutChecks) {
  const std::string text = failure_of([] {
    Threads<>::run(3, {}, [](auto& c) {
      const Counts two(3, 2), three{2, c.rank() == 2 ? 3 : 2, 2};
      std::vector<float> send(6), receive(7);
      all_to_all(c, std::vector<Exchange<float>>{{send.data(), two, receive.data(), three}}).wait();
    });
  });
  test::expect_parts(text, {"in exchange 0, rank 1 sends 2 elements to rank 2, which receives 3"});
}

TEST(Threads, MismatchedCollectivesAreAnErrorEvenWithoutChecks) {
  const std::string text = failure_of([] {
    Threads<>::run(2, {}, [](auto& c) {
      const Counts counts{1, 1};
      float values[3] = {};
      const std::vector<Segment<float>> one{{values, values + 1, counts}};
      if (c.rank() == 0)
        all_gather(c, one).wait();
      else
        reduce_scatter<float>(c, one, Write::overwrite).wait();
    });
  });
  test::expect_parts(text, {"ranks disagree"});
}

/// Returns the error messages of two ranks that enter these collectives at the same time.
std::vector<std::string> told(const std::function<void(Threads<>&)>& call) {
  std::vector<std::string> texts(2);
  Threads<>::run(2, {},
                 [&](Threads<>& c) { texts[static_cast<std::size_t>(c.rank())] = failure_of([&] { call(c); }); });
  return texts;
}

TEST(Threads, MismatchedArgumentsFailOnEveryRankEvenWithoutChecks) {
  const auto expect_told = [](const std::string& part, const std::function<void(Threads<>&)>& call) {
    for (const std::string& text : told(call)) {
      test::expect_parts(text, {"ranks disagree: rank ", part});
    }
  };
  /// Calls f with a segment of these counts, in memory of exactly that size.
  const auto with = [](Threads<>& c, const Counts& counts, auto f) {
    std::vector<float> full(static_cast<std::size_t>(counts[0] + counts[1]), 1.0f);
    float* const own = full.data() + (c.rank() == 0 ? 0 : counts[0]);
    f(std::vector<Segment<float>>{{own, full.data(), counts}});
  };
  for (const bool longer_first : {true, false}) {
    const auto sizes = [=](Threads<>& c) {
      return (c.rank() == 0) == longer_first ? Counts{5000, 5000} : Counts{5, 5};
    };
    expect_told("(f32, 1 segments, 10 elements)",
                [&](auto& c) { with(c, sizes(c), [&](auto list) { all_gather(c, list).wait(); }); });
    expect_told("(f32, 1 segments, 10000 elements)", [&](auto& c) {
      with(c, sizes(c), [&](auto list) { reduce_scatter<float>(c, list, Write::overwrite).wait(); });
    });
    expect_told("all_reduce (f32, 1 segments, 10 elements)",
                [&](auto& c) { with(c, sizes(c), [&](auto list) { all_reduce<float>(c, list).wait(); }); });
    expect_told("broadcast (u8, 1 segments, 16 elements)", [&](auto& c) {
      std::vector<std::byte> bytes((c.rank() == 0) == longer_first ? 16 : 8);
      broadcast(c, std::span(bytes), 0);
    });
    expect_told("(u8, 1 segments, 16 elements)", [&](auto& c) {
      std::vector<double> values((c.rank() == 0) == longer_first ? 2 : 1);
      reduce(c, std::span(values), Reduction::sum);
    });
  }
  expect_told(", with other counts by rank", [&](auto& c) {
    with(c, c.rank() == 0 ? Counts{3, 1} : Counts{1, 3}, [&](auto list) { all_gather(c, list).wait(); });
  });
  expect_told(", of another root", [](auto& c) {
    std::array<std::byte, 4> bytes{};
    broadcast(c, std::span<std::byte>(bytes), c.rank());
  });
  expect_told(", with another reduction", [](auto& c) {
    double value = 1;
    reduce(c, std::span(&value, 1), c.rank() == 0 ? Reduction::sum : Reduction::max);
  });
  expect_told(", with another reduction", [](auto& c) {
    double value = 1;
    std::int64_t number = 1;
    if (c.rank() == 0) return reduce(c, std::span(&value, 1), Reduction::sum);
    reduce(c, std::span(&number, 1), Reduction::sum);
  });
  expect_told("barrier (u8, 0 segments, 0 elements)", [](auto& c) {
    std::array<std::byte, 4> bytes{};
    if (c.rank() == 0) return barrier(c);
    broadcast(c, std::span<std::byte>(bytes), 1);
  });
  expect_told("(f32 as bf16, 1 segments, 4 elements)", [&](auto& c) {
    with(c, {2, 2}, [&](auto list) {
      if (c.rank() == 0) return all_reduce<float>(c, list).wait();
      all_reduce<bf16>(c, list).wait();
    });
  });
}

TEST(Threads, RandomDelaysDifferByRankAndCollective) {
  const auto delay = random_delays(5, milliseconds(20));
  const auto seconds = [&](int rank, std::int64_t sequence) {
    const auto begin = std::chrono::steady_clock::now();
    delay(rank, {.sequence = sequence, .label = {}});
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  double least = 1;
  double most = 0;
  for (int rank : {0, 1})
    for (std::int64_t sequence = 0; sequence < 8; ++sequence) {
      const double once = seconds(rank, sequence);
      least = std::min(least, once);
      most = std::max(most, once);
      EXPECT_LT(once, 0.1);
    }
  EXPECT_GT(most - least, 0.005);
}

TEST(Threads, WaitingIsCountedSeparatelyFromCopying) {
  Threads<>::run(2, {}, [](auto& c) {
    if (c.rank() == 1) std::this_thread::sleep_for(milliseconds(50));
    barrier(c);
    EXPECT_GT(c.monitor().totals.waiting_seconds, c.rank() == 0 ? 0.03 : 0.0);
    EXPECT_LT(c.monitor().totals.copy_seconds, 0.02);
  });
}

/// Maps one small file repeatedly, so that more than 2^31 elements need little memory.
class RepeatedMemory {
 public:
  explicit RepeatedMemory(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    constexpr std::size_t block = std::size_t{1} << 24;
    const int file = memfd_create("elements", 0);
    EXPECT_EQ(ftruncate(file, block), 0);
    void* const base = mmap(nullptr, bytes_ + block, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data_ = static_cast<std::uint8_t*>(base);
    for (std::size_t at = 0; at < bytes_; at += block)
      EXPECT_NE(mmap(data_ + at, block, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0), MAP_FAILED);
    close(file);
  }
  RepeatedMemory(const RepeatedMemory&) = delete;
  RepeatedMemory& operator=(const RepeatedMemory&) = delete;
  ~RepeatedMemory() { munmap(data_, bytes_ + (std::size_t{1} << 24)); }
  std::uint8_t* data() const { return data_; }

 private:
  std::size_t bytes_;
  std::uint8_t* data_ = nullptr;
};

TEST(Threads, GatherMoreElementsThanFitInAnInt) {
  if (test::thread_sanitizer) GTEST_SKIP() << "its own memory for so many elements would be eight times as large";
  constexpr std::int64_t many = (std::int64_t{1} << 31) + 77;
  Threads<>::run(2, {}, [](auto& c) {
    const Counts counts{many, 2};
    const RepeatedMemory full(many + 2);
    std::uint8_t pair[2] = {11, 22};
    std::uint8_t* const local = c.rank() == 0 ? full.data() : pair;
    if (c.rank() == 0) {
      local[0] = 3;
      local[many % (1 << 24) - 1] = 7;  // the last block is another mapping of the first one
    }
    all_gather(c, std::vector<Segment<std::uint8_t>>{{local, full.data(), counts}}).wait();
    EXPECT_EQ(full.data()[many], 11);
    EXPECT_EQ(full.data()[many + 1], 22);
    EXPECT_EQ(full.data()[many - 1], 7);
    EXPECT_EQ(c.monitor().totals.copied_bytes, c.rank() == 0 ? 2 : many + 2);
  });
}

int half_of(int rank) { return rank / 2; }

TEST(Threads, ArePartedByAPlainFunction) {
  Threads<>::run(4, {}, [](Threads<>& communicator) { EXPECT_EQ(split(communicator, half_of).size(), 2); });
}

}  // namespace
}  // namespace fsdp::comm

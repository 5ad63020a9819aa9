// SPDX-License-Identifier: Apache-2.0
// Collectives overlap with computation. Each computation on the device waits for all collectives that were started
// before it; this would deadlock if these collectives waited for the computation. In addition, rank 1 ends a
// computation only after rank 0's next computation has begun; this would deadlock if rank 0 waited for the collectives
// that need rank 1's gradients or slot.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/fsdp/testing/queued/queued_cpu.hpp>

#include <support/residual_net.hpp>

namespace fsdp::test {
namespace {

using testing::QueuedCpu;
using testing::QueuedEvent;

/// Threads that stores the events of its gathers and reductions.
class WatchedQueues : public comm::Threads<QueuedCpu> {
  using Threads = comm::Threads<QueuedCpu>;

 public:
  [[maybe_unused]] static constexpr std::string_view name = "watched queues";
  explicit WatchedQueues(Threads&& inner) : Threads(std::move(inner)) {}

  std::vector<QueuedEvent> gathers, reductions;

  template <class T>
  Request all_gather(std::span<const comm::Segment<T>> segments) {
    Request request = Threads::all_gather(segments);
    gathers.push_back(request.done());
    return request;
  }
  template <class Wire>
  Request reduce_scatter(std::span<const comm::Segment<float>> segments, Write write) {
    Request request = Threads::reduce_scatter<Wire>(segments, write);
    reductions.push_back(request.done());
    return request;
  }
  WatchedQueues split(int color) { return WatchedQueues(Threads::split(color)); }

  template <class F>
  static int run(int ranks, const comm::Options& options, F f) {
    return Threads::run(ranks, options, [&](Threads& inner) {
      WatchedQueues watched(std::move(inner));
      f(watched);
    });
  }
};

/// The numbers of collectives that had been started when each computation of a step of four units began, and whether
/// they all ended while that computation ran.
struct Seen {
  std::vector<std::size_t> gathers, reductions;  // numbers that rank 0 had started
  std::atomic<int> begun = 0;                    ///< computations of rank 0 that have begun on the device
  std::atomic<int> late = 0;                     ///< waits that reached their deadline
};

/// Waits until `happened()`; counts a timeout as late.
template <class Happened>
void wait_for(Seen& seen, const Happened& happened) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!happened() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  if (!happened()) ++seen.late;
}

/// `holds`: computations wait as described at the top of this file.
void step(int prefetch_depth, bool holds, Seen& seen) {
  constexpr int count = 4;
  using Device = device::Cpu;
  WatchedQueues::run(2, {}, [&](WatchedQueues& communicator) {
    Sharded<Stack<FullyShard<>, WatchedQueues, Fp32>> sharded(communicator, net::units(count),
                                                              {.prefetch_depth = prefetch_depth});
    sharded.initialize(1);
    communicator.gathers.clear();
    auto pass = sharded.train();
    const bool first = communicator.rank() == 0;
    int computed = 0;
    const auto compute = [&](auto use) {
      use.weight(0);  // the computation starts when its weights are gathered
      ++computed;
      if (first) {
        seen.gathers.push_back(communicator.gathers.size());
        seen.reductions.push_back(communicator.reductions.size());
      }
      std::vector<QueuedEvent> started = communicator.gathers;
      started.insert(started.end(), communicator.reductions.begin(), communicator.reductions.end());
      if (!holds) return;
      const int next = computed < 2 * count ? computed + 1 : 0;
      sharded.stream().submit("wait", {}, [started = std::move(started), first, next, &seen](Device::Stream&) {
        if (first) ++seen.begun;
        for (const QueuedEvent& event : started) wait_for(seen, [&] { return event.happened(); });
        if (!first) wait_for(seen, [&] { return seen.begun >= next; });
      });
    };
    for (int unit = 0; unit < count; ++unit) compute(pass.forward(unit));
    for (int unit = count; unit-- > 0;) compute(pass.backward(unit));
    pass.finish();
    sharded.step(0, {.lr = 0});
  });
  EXPECT_EQ(QueuedCpu::take_races(), std::vector<std::string>{});
}

using Counts = std::vector<std::size_t>;

TEST(Overlap, GathersAndReductionsOverlapWithComputation) {
  Seen seen;
  step(1, true, seen);
  EXPECT_EQ(seen.late, 0) << "collectives that waited for a computation";
  EXPECT_EQ(seen.gathers, (Counts{2, 3, 4, 4, 5, 6, 7, 7}));
  EXPECT_EQ(seen.reductions, (Counts{0, 0, 0, 0, 0, 1, 2, 3}));
}

TEST(Overlap, GathersOnlyOverlapIfPrefetched) {
  Seen seen;
  step(0, false, seen);
  EXPECT_EQ(seen.gathers, (Counts{1, 2, 3, 4, 4, 5, 6, 7}));
}

}  // namespace
}  // namespace fsdp::test

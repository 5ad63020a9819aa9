// SPDX-License-Identifier: Apache-2.0
// Collectives run beside computation: each computation on the device waits for what was started before it, which would
// never end if that waited for the computation.
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

/// Threads that keeps the events of its gathers and reductions.
class WatchedQueues : public comm::Threads<QueuedCpu> {
  using Threads = comm::Threads<QueuedCpu>;

 public:
  static constexpr std::string_view name = "watched queues";
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

/// What had been started when each computation of a step of four units began, and whether all of it ended while the
/// computation ran.
struct Seen {
  std::vector<std::size_t> gathers, reductions;
  std::atomic<int> late = 0;
};

void step(int prefetch_depth, Seen& seen) {
  constexpr int count = 4;
  using Device = device::Cpu;
  WatchedQueues::run(2, {}, [&](WatchedQueues& communicator) {
    Sharded<Stack<FullyShard<>, WatchedQueues, Fp32>> sharded(communicator, net::units(count),
                                                              {.prefetch_depth = prefetch_depth});
    sharded.initialize(1);
    communicator.gathers.clear();
    auto pass = sharded.train();
    const auto compute = [&](auto use) {
      use.weight(0);  // the computation starts when its weights are there
      if (communicator.rank() == 0) {
        seen.gathers.push_back(communicator.gathers.size());
        seen.reductions.push_back(communicator.reductions.size());
      }
      std::vector<QueuedEvent> started = communicator.gathers;
      started.insert(started.end(), communicator.reductions.begin(), communicator.reductions.end());
      sharded.stream().submit("wait", {}, [started = std::move(started), &seen](Device::Stream&) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        for (const QueuedEvent& event : started) {
          while (!event.happened() && std::chrono::steady_clock::now() < deadline)
            std::this_thread::sleep_for(std::chrono::microseconds(50));
          if (!event.happened()) ++seen.late;
        }
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

TEST(Overlap, EveryGatherButTheFirstAndEveryReductionButTheLastRunsBesideAComputation) {
  Seen seen;
  step(1, seen);
  EXPECT_EQ(seen.late, 0) << "collectives that waited for a computation";
  EXPECT_EQ(seen.gathers, (Counts{2, 3, 4, 4, 5, 6, 7, 7}));
  EXPECT_EQ(seen.reductions, (Counts{0, 0, 0, 0, 0, 1, 2, 3}));
}

TEST(Overlap, OfGathersNeedsThatTheyAreAskedForAhead) {
  Seen seen;
  step(0, seen);
  EXPECT_EQ(seen.late, 0);
  EXPECT_EQ(seen.gathers, (Counts{1, 2, 3, 4, 4, 5, 6, 7}));
}

}  // namespace
}  // namespace fsdp::test

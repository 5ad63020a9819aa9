// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/queued_core.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/self.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/device/cuda.hpp>
#include <tessera/fsdp/testing/communicator.hpp>

#include <support/errors.hpp>
#include "queued_values.hpp"

namespace fsdp::comm {
namespace {

using std::chrono::milliseconds;
using Queue = QueuedQueue;
using OnQueues = Threads<QueuedDevice>;

static_assert(check_communicator<OnQueues>() && check_communicator<Self<QueuedDevice>>() &&
              check_communicator<Self<device::Cuda>>() && QueuedCommunicator<OnQueues> &&
              !QueuedCommunicator<Threads<>>);

/// Values are in device memory, and the accesses of all queues must be ordered.
struct QueuedRanks {
  using Fixture = Ordered;
  template <class F>
  static int run(int ranks, const Options& options, F f) {
    return OnQueues::run(ranks, options, [&f](auto& c) {
      const InDeviceMemory values;
      f(c);
    });
  }
};

template <class Behaviour>
class QueuedThreads : public Ordered {};
TYPED_TEST_SUITE(QueuedThreads, AllBehaviours, BehaviourName);

/// A single rank needs no group.
TYPED_TEST(QueuedThreads, OneRankAlone) {
  Self<QueuedDevice>::run({}, [](auto& c) {
    const InDeviceMemory values;
    TypeParam::check(c);
  });
}

class QueuedThreadsOrder : public Ordered {};

TEST_F(QueuedThreadsOrder, CollectivesStartAfterTheCallersEventsAndQueuesWaitForThem) {
  for (int ranks : {1, 2, 4}) {
    OnQueues::run(ranks, {}, [](auto& c) {
      const InDeviceMemory values;
      const auto n = static_cast<std::size_t>(c.size());
      const Counts counts(n, 100);
      Floats local(100);
      Floats full(100 * n);
      Floats found(100 * n);
      Queue compute("compute");
      Queue other("other");
      for (int round = 1; round <= 20; ++round) {
        write_later(compute, local, static_cast<float>(c.rank() + 10 * round), milliseconds(round % 3));
        write_later(other, full, -1.0f, milliseconds(round % 2));
        after(c, compute.record());
        after(c, other.record());
        auto gathered = all_gather(c, std::vector<Segment<float>>{{local.data(), full.data(), counts}});
        gathered.wait(compute);
        copy(compute, full, found);
        other.wait(compute.record());
        synchronize(c, compute);
        expect_ranks_values(found, 100, 10 * round);
      }
    });
  }
}

TEST_F(QueuedThreadsOrder, ExchangesStartAfterTheCallersEventsAndQueuesWaitForThem) {
  OnQueues::run(3, {}, [](auto& c) {
    const InDeviceMemory values;
    const Counts counts(3, 50);
    Floats send(150), receive(150), found(150);
    Queue compute("compute");
    for (int round = 1; round <= 20; ++round) {
      write_later(compute, send, static_cast<float>(c.rank() + 10 * round), milliseconds(round % 3));
      after(c, compute.record());
      auto exchanged = all_to_all(c, std::vector<Exchange<float>>{{send.data(), counts, receive.data(), counts}});
      exchanged.wait(compute);
      copy(compute, receive, found);
      synchronize(c, compute);
      expect_ranks_values(found, 50, 10 * round);
    }
  });
}

TEST_F(QueuedThreadsOrder, DetectsAMissingEventAroundACollectiveOrAnExchange) {
  Queue::check_only(true);
  for (const bool exchanges : {false, true})
    for (const bool before : {false, true}) {
      OnQueues::run(2, {}, [&](auto& c) {
        const InDeviceMemory values;
        const Counts counts(2, 50), pieces(2, 100);
        Floats local(100), full(200), received(100);
        Queue compute("compute");
        write_later(compute, local, 1.0f, milliseconds(1));
        if (before) after(c, compute.record());
        auto moved = exchanges
                         ? all_to_all(c, std::vector<Exchange<float>>{{local.data(), counts, received.data(), counts}})
                         : all_gather(c, std::vector<Segment<float>>{{local.data(), full.data(), pieces}});
        if (!before) moved.wait(compute);
        write_later(compute, local, 2.0f, milliseconds(1));
      });
      EXPECT_NE(QueuedDevice::take_races(), std::vector<std::string>{});
    }
  Queue::check_only(false);
}

TEST_F(QueuedThreadsOrder, QueuesMayWaitAfterTheHostSawCompletion) {
  OnQueues::run(2, {}, [](auto& c) {
    const InDeviceMemory values;
    const Counts counts(2, 100);
    Floats local(100, 1.0f);
    Floats full(200);
    Queue compute("compute");
    const std::vector<Segment<float>> segments{{local.data(), full.data(), counts}};
    auto tested = all_gather(c, segments);
    while (!tested.test()) std::this_thread::yield();
    tested.wait(compute);
    write_later(compute, full, 2.0f, milliseconds(0));
    after(c, compute.record());
    auto waited = all_gather(c, segments);
    waited.wait();
    waited.wait(compute);
    write_later(compute, full, 3.0f, milliseconds(0));
  });
}

TEST_F(QueuedThreadsOrder, TheHostDoesNotWaitForTheDevice) {
  std::atomic<bool> released = false;
  OnQueues::run(2, {}, [&](auto& c) {
    const Counts counts(2, 10);
    Floats full(20, 1.0f);
    Queue compute("compute");
    hold(compute, released);
    after(c, compute.record());
    auto sum = all_reduce<float>(c, std::vector<Segment<float>>{{full.data() + 10 * c.rank(), full.data(), counts}});
    sum.wait(compute);
    EXPECT_FALSE(sum.test());
    barrier(c);
    EXPECT_FALSE(sum.test());
    barrier(c);
    released = true;
    synchronize(c, compute);
    EXPECT_TRUE(sum.test());
    for (float value : full) EXPECT_EQ(value, 2.0f);
  });
}

TEST(QueuedThreadsFaults, ReportsADeviceThatHangsAtTheDeadline) {
  std::array<Queue, 2> stuck{Queue("stuck"), Queue("stuck")};  // each queue is used by one host thread
  std::atomic<bool> released = false;
  for (Queue& queue : stuck) hold(queue, released);
  const std::string text = test::error_of<CollectiveError>([&] {
    OnQueues::run(2, {.device_deadline = milliseconds(100)}, [&](auto& c) {
      if (c.rank() == 1) std::this_thread::sleep_for(milliseconds(20));
      synchronize(c, stuck[static_cast<std::size_t>(c.rank())]);
    });
  });
  released = true;
  test::expect_parts(text, {"for the device; the limit of the device is 0.100 s"});
}

TEST(QueuedThreadsFaults, DeviceWorkMayTakeLongerThanTheDeadlineOfRanks) {
  OnQueues::run(2, {.deadline = milliseconds(20)}, [&](auto& c) {
    Queue slow("slow");
    Floats value(1);
    write_later(slow, value, 1.0f, milliseconds(200));
    synchronize(c, slow);
    EXPECT_EQ(value[0], 1.0f);
  });
}

TEST(QueuedThreadsFaults, MemoryOfAFailingRankOutlivesItsPeersQueuedWork) {
  struct Ending {
    ~Ending() { std::fill(values.begin(), values.end(), -1.0f); }
    Floats& values;
  };
  std::vector<Floats> locals{Floats(100, 1.0f), Floats(100, 2.0f)};
  std::vector<Floats> found(2, Floats(200));
  const auto rank = [&](auto& c) {
    const Counts counts(2, 100);
    Queue compute("compute");
    const auto own = static_cast<std::size_t>(c.rank());
    Floats early(1);
    const Ending ending{locals[own]};
    write_later(compute, early, 0.0f, milliseconds(c.rank() == 0 ? 100 : 0));  // rank 0's queue reads late
    after(c, compute.record());
    auto gathered = all_gather(c, std::vector<Segment<float>>{{locals[own].data(), found[own].data(), counts}});
    gathered.wait(compute);
    if (c.rank() == 1) throw InputError("ends while its memory is read");
    compute.synchronize();
  };
  EXPECT_THROW(OnQueues::run(2, {}, rank), InputError);
  EXPECT_EQ(found[0].back(), 2.0f);
}

TEST(QueuedThreadsFaults, ReportsARankThatNeverArrives) {
  std::string text;
  std::atomic<bool> missed = false;
  const auto rank = [&](auto& c) {
    while (c.rank() == 1 && !missed) std::this_thread::sleep_for(milliseconds(1));
    if (c.rank() == 1) throw InputError("never came");
    const Counts counts(2, 4);
    Floats full(8);
    Queue compute("compute");
    try {
      auto gathered = all_gather(c, std::vector<Segment<float>>{{full.data(), full.data(), counts}});
      gathered.wait(compute);
    } catch (const CollectiveError& error) {
      text = error.what();
      missed = true;
      throw;
    }
  };
  EXPECT_THROW(OnQueues::run(2, {.deadline = milliseconds(100)}, rank), CollectiveError);
  test::expect_parts(text, {"rank 1 (has not come)"});
}

}  // namespace
}  // namespace fsdp::comm

namespace fsdp::testing {

INSTANTIATE_TYPED_TEST_SUITE_P(QueuedThreads, CommunicatorSuite, comm::QueuedRanks);

}  // namespace fsdp::testing

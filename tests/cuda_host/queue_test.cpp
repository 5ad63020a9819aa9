// SPDX-License-Identifier: Apache-2.0
/// Streams, events and graphs: the calls of queue.cpp to CUDA's runtime.
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/fsdp/device/host_memory.hpp>

#include "on_doubles.hpp"

namespace fsdp::testing::cuda_host {
namespace {

using device::Cuda;

class CudaHost_queue : public OnDoubles {
 protected:
  static constexpr std::int64_t count = 1000;

  struct Buffers {
    device::Ledger ledger;
    device::Block<Cuda> a{ledger, device::MemoryKind::weights, count * 4};
    device::Block<Cuda> b{ledger, device::MemoryKind::weights, count * 4};
    static Tensor<float> of(const device::Block<Cuda>& block) {
      return {reinterpret_cast<float*>(block.data()), {1, count}};
    }
  };
  struct WithStream : Buffers {
    Cuda::Arena arena{ledger, 1 << 20};
    Cuda::Stream stream{arena};
  };
};

TEST_F(CudaHost_queue, OrdersWorkByEvents) {
  WithStream buffers;
  Cuda::Stream& stream = buffers.stream;
  Cuda::Queue other("other");
  std::atomic<bool> go = false;
  hold(stream, go);
  device::enqueue(stream, device::Fill<float>{.y = Buffers::of(buffers.a), .value = 3});
  const Cuda::Event filled = stream.record();
  EXPECT_FALSE(filled.happened());
  other.wait(filled);
  Cuda::move(other, buffers.a.data(), buffers.b.data(), count * 4);
  const Cuda::Event moved = other.record();
  go = true;
  other.synchronize();
  EXPECT_TRUE(filled.happened() && moved.happened() && Cuda::Event().happened());
  EXPECT_EQ(Buffers::of(buffers.b).data()[count - 1], 3.0f);
}

TEST_F(CudaHost_queue, WrapsAStreamOfTheHostProgramWithoutOwningIt) {
  Buffers buffers;
  cudaStream_t own = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&own, cudaStreamNonBlocking, 0), cudaSuccess);
  {
    Cuda::Arena arena(buffers.ledger, 1 << 20);
    Cuda::Stream stream(arena);
    Cuda::Queue borrowed = Cuda::Queue::borrow(own);
    EXPECT_EQ(borrowed.native(), own);
    std::atomic<bool> go = false;
    hold(stream, go);
    device::enqueue(stream, device::Fill<float>{.y = Buffers::of(buffers.a), .value = 3});
    borrowed.wait(stream.record());
    cudaMemcpyAsync(buffers.b.data(), buffers.a.data(), count * 4, cudaMemcpyDefault, own);
    stream.wait(borrowed.record());
    go = true;
    stream.synchronize();
    EXPECT_EQ(Buffers::of(buffers.b).data()[count - 1], 3.0f);
  }
  EXPECT_EQ(machine().held()["streams"], 1);
  EXPECT_EQ(cudaStreamDestroy(own), cudaSuccess);
  EXPECT_THROW(Cuda::Queue::borrow(nullptr), InputError) << "the default stream";
}

TEST_F(CudaHost_queue, ReusesReleasedEvents) {
  Cuda::Queue queue("queue"), other("other");
  Cuda::Event kept = queue.record();
  for (int i = 0; i < 100; ++i) {
    other.wait(queue.record());
    queue.wait(other.record());
  }
  const Cuda::Event copy = kept;
  kept = {};
  queue.wait(copy);
  queue.record();
  EXPECT_EQ(machine().calls()["cudaEventCreateWithFlags"], 3);  // `copy`, and one for each queue
}

TEST_F(CudaHost_queue, WaitsForTheStateOfAnEventAtTheCall) {
  WithStream buffers;
  Cuda::Stream& stream = buffers.stream;
  Cuda::Queue other("other");
  std::atomic<bool> first = false, second = false;
  hold(stream, first);
  device::enqueue(stream, device::Fill<float>{.y = Buffers::of(buffers.a), .value = 3});
  other.wait(stream.record());  // the event is released while this wait is pending
  Cuda::move(other, buffers.a.data(), buffers.b.data(), count * 4);
  hold(stream, second);
  const Cuda::Event later = stream.record();  // reuses the same cudaEvent_t
  EXPECT_EQ(machine().calls()["cudaEventCreateWithFlags"], 1);
  first = true;
  other.synchronize();
  EXPECT_EQ(Buffers::of(buffers.b).data()[count - 1], 3.0f);
  EXPECT_FALSE(later.happened());
  second = true;
  stream.synchronize();
  EXPECT_TRUE(later.happened());
}

TEST_F(CudaHost_queue, EventsMayBeReleasedByAnyThreadAndAfterTheirQueue) {
  std::vector<Cuda::Event> events;
  {
    Cuda::Queue queue("queue");
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < 50; ++i) events.push_back(queue.record());
      std::thread dropper([dropped = std::exchange(events, {})]() mutable { dropped.clear(); });
      for (int i = 0; i < 50; ++i) events.push_back(queue.record());
      dropper.join();
    }
    EXPECT_LE(machine().calls()["cudaEventCreateWithFlags"], 150);  // the most events held at the same time
    queue.synchronize();
  }
  EXPECT_EQ(machine().held().count("streams"), 0u);
  EXPECT_GT(machine().held()["events"], 0);
  EXPECT_TRUE(events.back().happened());
}

TEST_F(CudaHost_queue, EventsOfACaptureAreReusedOutsideIt) {
  Buffers buffers;
  Cuda::Queue stream("stream"), other("other");
  const auto cross = [&] {
    other.wait(stream.record());
    Cuda::move(other, buffers.a.data(), buffers.b.data(), count * 4);
    stream.wait(other.record());
  };
  cross();
  const Cuda::Graph graph = Cuda::capture(stream, cross);
  cross();
  graph.launch(stream);
  EXPECT_THROW(Cuda::capture(stream, [&] { cross(), throw Error("given up"); }), Error);
  cross();
  const Cuda::Event end = stream.record();
  stream.synchronize();
  EXPECT_TRUE(end.happened());
  EXPECT_EQ(machine().calls()["cudaEventCreateWithFlags"], 2);
}

TEST_F(CudaHost_queue, CapturesWorkOfAllJoinedQueuesAndReplaysIt) {
  WithStream buffers;
  Cuda::Stream& stream = buffers.stream;
  Cuda::Queue other("other");
  device::enqueue(stream, device::Fill<float>{.y = Buffers::of(buffers.a), .value = 1});
  device::enqueue(stream, device::Fill<float>{.y = Buffers::of(buffers.b), .value = 0});
  const Cuda::Graph graph = Cuda::capture(stream, [&] {
    device::enqueue(stream, device::Add<float>{.x = Buffers::of(buffers.a), .y = Buffers::of(buffers.b)});
    other.wait(stream.record());
    Cuda::move(other, buffers.b.data(), buffers.a.data(), count * 4);
    stream.wait(other.record());
  });
  stream.synchronize();
  EXPECT_EQ(Buffers::of(buffers.b).data()[0], 0.0f) << "what is captured is not done";
  for (int i = 0; i < 3; ++i) graph.launch(stream);
  stream.synchronize();
  EXPECT_EQ(Buffers::of(buffers.a).data()[count - 1], 4.0f);  // 1, 1 + 0, 1 + 1, 2 + 2
}

TEST_F(CudaHost_queue, AnInvalidatedCaptureThrowsAndLeavesNoGraph) {
  Buffers buffers;
  Cuda::Queue stream("stream"), other("other");
  const Cuda::Event before = other.record();
  EXPECT_THROW(Cuda::capture(stream, [&] { Cuda::allocate(100); }), Error);
  EXPECT_THROW(Cuda::capture(stream, [&] { stream.synchronize(); }), Error);
  EXPECT_THROW(Cuda::capture(stream, [&] { stream.wait(before); }), Error);
  EXPECT_EQ(machine().take_problems().size(), 3u);
  EXPECT_THROW(Cuda::capture(stream,
                             [&] {
                               other.wait(stream.record());
                               Cuda::move(other, buffers.a.data(), buffers.b.data(), 4);
                             }),
               Error)
      << "the stream has not waited for the other";
  stream.synchronize();
}

TEST_F(CudaHost_queue, CopiesOfPinnedMemoryDoNotBlockTheHost) {
  Buffers buffers;
  Cuda::Queue queue("queue");
  std::atomic<bool> go = false;
  hold(queue, go);
  device::HostCopy<Cuda, float> copy(count);
  copy.fetch(queue, Buffers::of(buffers.a).data());
  EXPECT_FALSE(copy.copied().happened());
  go = true;
  queue.synchronize();
  EXPECT_EQ(copy.value(), 0.0f);
}

}  // namespace
}  // namespace fsdp::testing::cuda_host

// SPDX-License-Identifier: Apache-2.0
/// The production code of NCCL's ranks on the library's function table, over the fakes.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/self.hpp>
#include <tessera/fsdp/testing/contract_behaviours.hpp>

#include <comm/free_port.hpp>
#include <support/temporary_folder.hpp>

#include "on_doubles.hpp"

namespace fsdp::testing::cuda_host {
namespace {

using comm::CollectiveError;
using device::Cuda;
using std::chrono::milliseconds;
using Ranks = comm::Nccl<>;
using Counts = std::vector<std::int64_t>;

class CudaHost_nccl : public OnDoubles {
 protected:
  void SetUp() override {
    OnDoubles::SetUp();
    machine().reset(8);
  }
  /// Floats in device memory.
  struct Floats : DeviceMemory {
    explicit Floats(std::int64_t count) : DeviceMemory(count * 4) {}
    float* data() const { return reinterpret_cast<float*>(block.data()); }
    std::span<float> values() const { return {data(), static_cast<std::size_t>(block.bytes() / 4)}; }
    void fill(float value) const { std::ranges::fill(values(), value); }
    void expect_all(float value) const {
      EXPECT_EQ(std::vector<float>(values().begin(), values().end()), std::vector<float>(values().size(), value));
    }
  };
};

TEST_F(CudaHost_nccl, GathersSumsAndBroadcastsValues) {
  for (int ranks : {1, 2, 3, 8})
    run_ranks(ranks, {}, [&](Ranks& c) {
      const Counts counts(static_cast<std::size_t>(ranks), 10);
      const Floats full(10 * ranks), local(10);
      Cuda::Queue compute("compute");
      local.fill(static_cast<float>(c.rank()));
      const std::vector<comm::Segment<float>> pieces{{local.data(), full.data(), counts}};
      comm::all_gather(c, pieces).wait();
      for (float i = 0; const float value : full.values()) ASSERT_EQ(value, std::floor(i++ / 10));
      comm::reduce_scatter<float>(c, pieces, Write::accumulate).wait();
      local.expect_all(static_cast<float>(c.rank() * (ranks + 1)));
      comm::reduce_scatter<bf16>(c, pieces, Write::overwrite).wait();
      local.expect_all(static_cast<float>(c.rank() * ranks));
      EXPECT_EQ(comm::sum_over_ranks(c, 2), 2 * ranks);
      comm::barrier(c);
      Ranks part = comm::split(c, [](int rank) { return rank % 2; });
      EXPECT_EQ(comm::sum_over_ranks(part, 1), (ranks + 1 - c.rank() % 2) / 2);
    });
}

/// Sums of the library's own kernel. Each contribution alone is rounded away; if they were summed first, the result
/// would change.
TEST_F(CudaHost_nccl, AccumulatesEachContribution) {
  for (int ranks : {1, 2, 3, 5})
    run_ranks(ranks, {}, [&](Ranks& c) {
      const Counts counts(static_cast<std::size_t>(ranks), 13);
      const Floats full(13 * ranks), local(13);
      const std::vector<comm::Segment<float>> pieces{{local.data(), full.data(), counts}};
      full.fill(0x1p-24f);
      local.fill(1);
      comm::reduce_scatter<float>(c, pieces, Write::accumulate, {}, comm::Contributions::kept, comm::SumOrder::ranks)
          .wait();
      comm::reduce_scatter<bf16>(c, pieces, Write::accumulate).wait();
      comm::reduce_scatter<f16>(c, pieces, Write::accumulate).wait();
      local.expect_all(1);
      full.fill(c.rank() % 2 == 0 ? 1e8f : -1e8f);
      comm::reduce_scatter<float>(c, pieces, Write::accumulate, {}, comm::Contributions::spent, comm::SumOrder::ranks)
          .wait();
      local.expect_all(ranks % 2 == 1 ? 1e8f : 0.0f);
    });
}

TEST_F(CudaHost_nccl, RoundsContributionsToHalfPrecisionOnce) {
  for (int ranks : {1, 2, 5})
    run_ranks(ranks, {}, [](Ranks& c) {
      ValueMemory::shared = comm::QueueOf<Cuda>::allocate;
      SumsInRankOrderToTheBit::check_wire<f16>(c, Write::overwrite);
      SumsInRankOrderToTheBit::check_wire<f16>(c, Write::accumulate);
      AllReduceGivesTheBitsOfReduceScatter::check_wire<f16>(c);
      ValueMemory::shared = nullptr;
    });
}

/// Exchanges directly and in a graph. Each pair of ranks sends the same number of elements both ways, from 0 to 3.
TEST_F(CudaHost_nccl, AllToAllWorksDirectlyAndInReplayedGraphs) {
  for (int ranks : {1, 2, 3, 8})
    run_ranks(ranks, {}, [&](Ranks& c) {
      Counts counts;
      std::vector<float> sent, expected;
      for (int peer = 0; peer < ranks; ++peer) {
        counts.push_back((c.rank() + peer + 1) % 4);
        sent.insert(sent.end(), static_cast<std::size_t>(counts.back()), static_cast<float>(10 * c.rank() + peer));
        expected.insert(expected.end(), static_cast<std::size_t>(counts.back()),
                        static_cast<float>(10 * peer + c.rank()));
      }
      const Floats send(std::ssize(sent) + 1), receive(std::ssize(sent) + 1);
      const std::vector<comm::Exchange<float>> exchanges{{send.data(), counts, receive.data(), counts}};
      const auto check = [&](float more) {
        std::vector<float> found(receive.data(), receive.data() + expected.size());
        for (float& value : found) value -= more;
        EXPECT_EQ(found, expected);
      };
      std::copy(sent.begin(), sent.end(), send.data());
      comm::all_to_all(c, exchanges).wait();
      check(0);
      Cuda::Queue compute("compute");
      const Cuda::Graph graph = Cuda::capture(compute, [&] {
        comm::after(c, compute.record());
        comm::all_to_all(c, exchanges).wait(compute);
      });
      for (float& value : send.values()) value += 1000;
      comm::barrier(c);
      graph.launch(compute);
      comm::synchronize(c, compute);
      check(1000);
    });
}

TEST_F(CudaHost_nccl, CollectivesRunOnHighPriorityStreams) {
  run_ranks(2, {}, [&](Ranks& c) {
    const Cuda::Queue compute("compute");
    comm::barrier(c);
    EXPECT_EQ(machine().priorities(), (std::multiset<int>{Stream::highest, Stream::highest, 0, 0}));
    comm::barrier(c);
  });
}

TEST_F(CudaHost_nccl, ReplaysCapturedCollectives) {
  run_ranks(2, {}, [&](Ranks& c) {
    const Floats full(8), local(4);
    const Counts counts(2, 4);
    Cuda::Queue compute("compute");
    comm::barrier(c);
    const Cuda::Graph graph = Cuda::capture(compute, [&] {
      comm::after(c, compute.record());
      auto sum = comm::reduce_scatter<float>(c, std::vector<comm::Segment<float>>{{local.data(), full.data(), counts}},
                                             Write::accumulate);
      sum.wait(compute);
    });
    full.fill(1);
    comm::barrier(c);
    for (int i = 0; i < 3; ++i) graph.launch(compute);
    comm::synchronize(c, compute);
    EXPECT_EQ(local.data()[3], 6.0f);
  });
}

/// Two communicators of the same ranks, each with a collective that waits for nothing, on a device that runs one
/// collective kernel at a time.
TEST_F(CudaHost_nccl, CommunicatorsOfOneDeviceNeedALaunchOrder) {
  const auto gather_on_both = [&] {
    run_ranks(2, {}, [&](Ranks& c) {
      Ranks part = comm::split(c, [](int) { return 0; });
      const Counts counts(2, 4);
      const Floats full(8), local(4), other_full(8), other_local(4);
      comm::barrier(part);
      for (int round = 0; round < 4; ++round) {
        auto first = comm::all_gather(c, std::vector<comm::Segment<float>>{{local.data(), full.data(), counts}});
        comm::all_gather(part, std::vector<comm::Segment<float>>{{other_local.data(), other_full.data(), counts}})
            .wait();
        first.wait();
      }
    });
  };
  gather_on_both();
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);
  EXPECT_THROW(gather_on_both(), CollectiveError);
  expect_problem("another communicator's kernel waits for the device");
}

// ---- Failures end in time

class CudaHost_nccl_faults : public CudaHost_nccl {
 protected:
  using Clock = std::chrono::steady_clock;

  /// Returns the message of the CollectiveError of `run`; fails if there is none within a second.
  static std::string failure_of(const std::function<void()>& run) {
    const Clock::time_point begin = Clock::now();
    std::string text;
    try {
      run();
    } catch (const CollectiveError& error) {
      text = error.what();
    }
    EXPECT_NE(text, "") << "no error";
    EXPECT_LT(Clock::now() - begin, milliseconds(1000)) << text;
    return text;
  }
  /// Two ranks meet as processes do. Rank 0 calls first(c, fails); 100 ms after `fails`, rank 1 fails, and then rank 0.
  static void expect_reason(const std::function<void(Ranks&, std::atomic<bool>&)>& first) {
    const int port = comm::free_port();
    std::atomic<bool> fails = false;
    const auto rank = [&](comm::Threads<>& hosts) {
      Ranks::run(comm::nccl::library(), comm::place_of(hosts.rank(), 2, port), {}, [&](Ranks& c) {
        comm::barrier(c);
        while (c.rank() == 1 && !fails) std::this_thread::sleep_for(milliseconds(1));
        if (c.rank() == 1) std::this_thread::sleep_for(milliseconds(100));
        if (c.rank() == 1) throw InputError("a full disk");
        first(c, fails);
        expect_has(failure_of([&] { comm::barrier(c); }), "rank 1 failed: a full disk");
      });
    };
    EXPECT_THROW(comm::Threads<>::run(2, {}, rank), InputError);
  }
  /// Waits until `end` on a rank that is lost, and returns whether this one is.
  static bool is_lost(bool lost, const std::atomic<bool>& end) {
    while (lost && !end) std::this_thread::sleep_for(milliseconds(1));
    return lost;
  }
  /// A step with a collective, to be captured in a graph.
  struct Step {
    explicit Step(Ranks& c) : full(8 * c.size()), local(8), counts(static_cast<std::size_t>(c.size()), 8) {}
    void queue(Ranks& c) {
      comm::after(c, compute.record());
      comm::all_gather(c, std::vector<comm::Segment<float>>{{local.data(), full.data(), counts}}).wait(compute);
    }
    Floats full, local;
    Counts counts;
    Cuda::Queue compute{"compute"};
  };
};

TEST_F(CudaHost_nccl_faults, AFailureWithACapturedGraphIsReportedAtOnce) {
  run_ranks(2, {}, [&](Ranks& c) {
    comm::barrier(c);
    Step step(c);
    const Cuda::Graph graph = Cuda::capture(step.compute, [&] { step.queue(c); });
    graph.launch(step.compute);
    comm::synchronize(c, step.compute);
    comm::barrier(c);
    nccl().fail(c.rank(), FakeNccl::Result::remote_error);
    EXPECT_NE(failure_of([&] { comm::barrier(c); }).find("remote error"), std::string::npos);
    EXPECT_NE(failure_of([&] { comm::barrier(c); }).find("cannot be used"), std::string::npos);
  });
}

TEST_F(CudaHost_nccl_faults, AFailureDuringCaptureIsReportedAtOnce) {
  run_ranks(2, {}, [&](Ranks& c) {
    comm::barrier(c);
    Step step(c);
    failure_of([&] {
      Cuda::capture(step.compute, [&] {
        step.queue(c);
        nccl().fail(c.rank(), FakeNccl::Result::remote_error);
        step.queue(c);
      });
    });
  });
}

TEST_F(CudaHost_nccl_faults, ALaunchedGraphWithALostPeerTimesOut) {
  std::atomic<bool> missed = false;
  run_ranks(2, {.device_deadline = milliseconds(200)}, [&](Ranks& c) {
    comm::barrier(c);
    Step step(c);
    const Cuda::Graph graph = Cuda::capture(step.compute, [&] { step.queue(c); });
    if (is_lost(c.rank() == 1, missed)) return;
    graph.launch(step.compute);
    failure_of([&] { comm::synchronize(c, step.compute); });
    missed = true;
  });
}

TEST_F(CudaHost_nccl_faults, WaitingForValuesOfALostPeerTimesOut) {
  const auto without = [](int lost, const auto& collective) {
    std::atomic<bool> missed = false;
    run_ranks(2, {.device_deadline = milliseconds(200)}, [&](Ranks& c) {
      comm::barrier(c);
      if (is_lost(c.rank() == lost, missed)) return;
      failure_of([&] { collective(c); });
      missed = true;
    });
  };
  without(1, [](Ranks& c) { comm::barrier(c); });
  std::vector<std::byte> bytes(100);
  without(0, [&](Ranks& c) { comm::broadcast(c, bytes, 0); });
}

TEST_F(CudaHost_nccl_faults, ValuesSentBeforeAPeerFailedArrive) {
  nccl().tells_of_aborts = true;
  nccl().delays[1] = milliseconds(50);
  std::atomic<int> arrived = 0;
  EXPECT_THROW(run_ranks(2, {},
                         [&](Ranks& c) {
                           arrived += static_cast<int>(comm::sum_over_ranks(c, 1));
                           throw InputError("an error of all ranks, which they have agreed upon");
                         }),
               InputError);
  EXPECT_EQ(arrived, 4);
}

TEST_F(CudaHost_nccl_faults, DeviceWorkMayTakeLongerThanTheDeadlineOfRanks) {
  const auto check = [&](auto& c) {
    Cuda::Queue compute("compute");
    machine().submit(native(compute), [] { std::this_thread::sleep_for(milliseconds(300)); });
    comm::wait_for(c, compute.record(), {"a step's decision"});
    comm::synchronize(c, compute);
  };
  run_ranks(2, {.deadline = milliseconds(50)}, check);
  comm::Threads<Cuda>::run(2, {.deadline = milliseconds(50)}, check);
  comm::Self<Cuda>::run({.deadline = milliseconds(50)}, check);
}

/// The rank whose peer is lost in one communicator waits on another one; then its memory is freed, which waits for all.
TEST_F(CudaHost_nccl_faults, AFailureAbortsAllCommunicatorsOfTheRankBeforeMemoryIsFreed) {
  std::atomic<bool> missed = false;
  run_ranks(2, {.device_deadline = milliseconds(200)}, [&](Ranks& c) {
    Ranks part = comm::split(c, [](int) { return 0; });
    comm::barrier(part);
    comm::barrier(c);
    if (is_lost(c.rank() == 1, missed)) return;
    Step step(part);
    step.queue(part);
    failure_of([&] { comm::synchronize(c, step.compute); });
    failure_of([&] { comm::barrier(part); });
    missed = true;
  });
}

TEST_F(CudaHost_nccl_faults, AFailureOfOneCommunicatorEndsWaitsOnTheOthers) {
  std::atomic<bool> noticed = false;
  run_ranks(3, {.device_deadline = milliseconds(200)}, [&](Ranks& c) {
    Ranks part = comm::split(c, [](int rank) { return rank % 2; });
    comm::barrier(c);
    if (is_lost(c.rank() < 2, noticed)) return;
    nccl().fail(part.rank(), FakeNccl::Result::remote_error);  // a failure of `part`, since this is rank 2 of `c`
    expect_has(failure_of([&] { comm::barrier(c); }), "remote error");
    noticed = true;
  });
}

/// A host that is blocked in a call of the device hears nothing itself: its watch's thread aborts the collective.
TEST_F(CudaHost_nccl_faults, AHostThatIsBlockedBehindALostPeerIsReleased) {
  machine().patience = std::chrono::seconds(10);
  expect_reason([](Ranks& c, std::atomic<bool>& fails) {
    Step step(c);
    step.queue(c);
    fails = true;
    step.compute.synchronize();
  });
}

TEST_F(CudaHost_nccl_faults, AFailureThatNcclReportsFirstHasTheReasonOfTheRankThatFailed) {
  expect_reason([](Ranks& c, std::atomic<bool>& fails) {
    nccl().fail(c.rank(), FakeNccl::Result::remote_error);
    fails = true;
  });
}

TEST_F(CudaHost_nccl_faults, RegisteredMemoryIsFreedWhenNoKernelUsesIt) {
  run_ranks(1, {}, [&](Ranks& c) {
    std::shared_ptr<std::byte> memory = comm::shared_memory(c, 1000);
    ASSERT_NE(memory, nullptr);
    Cuda::Queue compute("compute");
    machine().submit(native(compute), [] { std::this_thread::sleep_for(milliseconds(50)); });
    memory.reset();
  });
}

class CudaHost_nccl_launch : public CudaHost_nccl {};

TEST_F(CudaHost_nccl_launch, AdoptsACommunicatorOfAHostProgramAndLeavesItAlone) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  comm::Threads<>::run(2, {}, [&](comm::Threads<>& host) {
    device::use_cuda_device(host.rank());
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclCommInitRankConfig(&comm, 2, id, host.rank(), &config);
    for (ncclResult_t state = ncclInProgress; state == ncclInProgress;) ncclCommGetAsyncError(comm, &state);
    {
      using comm::nccl::LaunchOrder, comm::nccl::Nvls;
      auto ranks = comm::Nccl<>::adopt(comm, {.launch_order = LaunchOrder::implicit, .nvls = Nvls::off});
      Ranks part = comm::split(ranks, [](int) { return 0; });
      EXPECT_EQ(comm::sum_over_ranks(part, 1), 2);
    }
    comm::barrier(host);
    ncclResult_t state = ncclInternalError;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    EXPECT_EQ(state, ncclSuccess);
    comm::barrier(host);
    ncclCommDestroy(comm);
  });
}

TEST_F(CudaHost_nccl_launch, ARankUsesOnlyItsOwnDevice) {
  const comm::JobPlace place{.rank = 0, .size = 1, .local_rank = 3, .local_size = 4};
  Ranks::run(comm::nccl::library(), place, {}, [&](Ranks& c) {
    comm::barrier(c);
    EXPECT_GT(Cuda::free_bytes(), 0);
  });
  EXPECT_EQ(machine().contexts(), std::set<int>{3});
  EXPECT_EQ(machine().calls()["cudaDeviceGetPCIBusId"], 1) << "near which the rank is bound";
}

TEST_F(CudaHost_nccl_launch, SelectsTheDeviceOfItsLocalRank) {
  machine().reset(2);
  const int port = comm::free_port();
  const auto place = [&](auto& host) { return comm::place_of(host.rank(), host.size(), port); };
  comm::Threads<>::run(2, {}, [&](auto& host) {
    Ranks::run(comm::nccl::library(), place(host), {}, [](auto& c) { EXPECT_EQ(machine().device(), c.rank()); });
  });
  comm::Threads<>::run(3, {}, [&](auto& host) {
    EXPECT_INPUT_ERROR(Ranks::run(comm::nccl::library(), place(host), {}, [](auto&) {}),
                       "rank 0: 3 ranks run on this machine, which has 2 devices");
  });
}

TEST_F(CudaHost_nccl_launch, AnUnusableDeviceIsReportedBeforeTheRendezvous) {
  const comm::JobPlace place{.rank = 0, .size = 1, .local_rank = 3, .local_size = 4};
  machine().fail("cudaFuncGetAttributes", cudaErrorNoKernelImageForDevice);
  EXPECT_INPUT_ERROR(Ranks::run(comm::nccl::library(), place, {}, [](Ranks&) {}), "device 3, a double, is sm_90");
  const comm::JobPlace beyond{.rank = 0, .size = 1, .local_rank = 8, .local_size = 9};
  EXPECT_THROW(Ranks::run(comm::nccl::library(), beyond, {}, [](Ranks&) {}), InputError);
}

}  // namespace
}  // namespace fsdp::testing::cuda_host

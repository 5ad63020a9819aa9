// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/nccl.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/zip.hpp>

#include <tessera/comm/simulated.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/testing/contract_behaviours.hpp>

#include <support/errors.hpp>
#include <support/nccl/queued.hpp>
#include "free_port.hpp"
#include "queued_values.hpp"

namespace fsdp::comm {
namespace {

using std::chrono::milliseconds;

using Fake = FakeQueuedNccl;
using Ranks = Nccl<QueuedDevice>;
using Kind = nccl::Call::Kind;

static_assert(check_communicator<Ranks>() && QueuedCommunicator<Ranks>);
static_assert(supports_wire<Ranks, bf16> && supports_wire<Ranks, f16> && !supports_wire<Ranks, double>);

/// Calls f(communicator) on every rank; ranks are threads.
template <class F>
void run_nccl(int ranks, const Options& options, F f) {
  nccl::Id id{};
  Fake::table().get_unique_id(id);
  Threads<>::run(ranks, {}, [&](auto& host) {
    Ranks c(Fake::table(), {.rank = host.rank(), .size = host.size(), .id = id, .settings = QueuedNccl::settings},
            options);
    const InDeviceMemory values;
    f(c);
  });
}

/// Checks that the fake NCCL reported no problem and no unordered access, and that all its objects were released.
class OnFakeNccl : public Ordered {
 protected:
  void SetUp() override {
    Ordered::SetUp();
    Fake::problems.clear();
    Fake::groups.clear();
    Fake::instance().tells_of_aborts = true;
  }
  void TearDown() override {
    Ordered::TearDown();
    for (const std::string& problem : Fake::problems) ADD_FAILURE() << problem;
    EXPECT_EQ(Fake::held, (std::map<std::string, int>{}));
  }
  /// Returns the number of calls of all ranks since the start, which must all be sends and receives.
  static std::size_t exchanges() {
    std::size_t found = 0;
    for (const auto& [rank, calls] : Fake::groups)
      for (const nccl::Call& call : calls) {
        EXPECT_TRUE(point_to_point(call)) << "rank " << rank << ", " << words(call);
        ++found;
      }
    return found;
  }
  /// The kinds of rank 0's calls since the start.
  static std::vector<Kind> kinds() {
    std::vector<Kind> found;
    for (const auto& [rank, calls] : Fake::groups)
      for (const nccl::Call& call : calls)
        if (rank == 0) found.push_back(call.kind);
    return found;
  }
};

/// The suite compares bits of float sums without SumOrder::ranks: NCCL's own order is that of ranks here.
template <class Behaviour>
class NcclBackend : public OnFakeNccl {
  const NcclSums sums_{NcclSumOrder::in_rank_order};
};
TYPED_TEST_SUITE(NcclBackend, AllBehaviours, BehaviourName);

TYPED_TEST(NcclBackend, OfAnyNumber) {
  for (int ranks : {1, 2, 3, 4, 8}) {
    SCOPED_TRACE(ranks);
    run_nccl(ranks, {}, [](Ranks& c) { TypeParam::check(c); });
  }
}

TYPED_TEST(NcclBackend, WithChecksOn) {
  run_nccl(3, {.checks = true}, [](Ranks& c) { TypeParam::check(c); });
}

TYPED_TEST(NcclBackend, APart) {
  run_nccl(5, {}, [](Ranks& c) {
    Ranks part = split(c, [](int rank) { return rank < 3 ? 0 : -1; });
    TypeParam::check(part);
  });
}

TYPED_TEST(NcclBackend, InRegisteredMemory) {
  run_nccl(2, {}, [](Ranks& c) {
    ValueMemory::shared = [&c](std::int64_t bytes) { return shared_memory(c, bytes); };
    TypeParam::check(c);
    ValueMemory::shared = nullptr;
  });
}

class NcclCollectives : public OnFakeNccl {};

TEST_F(NcclCollectives, MapToOneNcclCollectiveIfCountsAreEqual) {
  run_nccl(4, {}, [](Ranks& c) {
    const Counts counts(4, 10);
    Floats full(40);
    Floats local(10);
    const std::vector<Segment<float>> equal{{local.data(), full.data(), counts}};
    const std::vector<Segment<float>> in_place{{full.data() + 10 * c.rank(), full.data(), counts}};
    all_gather(c, equal).wait();
    reduce_scatter<float>(c, equal, Write::overwrite).wait();
    reduce_scatter<float>(c, equal, Write::accumulate).wait();
    all_reduce<float>(c, in_place).wait();
  });
  EXPECT_EQ(kinds(), (std::vector{Kind::all_gather, Kind::reduce_scatter, Kind::reduce_scatter, Kind::all_reduce}));
}

TEST_F(NcclCollectives, MapToOneRootedNcclCallPerRankIfCountsDiffer) {
  run_nccl(3, {}, [](Ranks& c) {
    const Counts counts{4, 0, 7};
    Floats full(11);
    Floats local(7);
    const std::vector<Segment<float>> uneven{{local.data(), full.data(), counts}};
    all_gather(c, uneven).wait();
    reduce_scatter<float>(c, uneven, Write::overwrite).wait();
  });
  EXPECT_EQ(kinds(), (std::vector{Kind::broadcast, Kind::broadcast, Kind::reduce, Kind::reduce}));
  EXPECT_EQ(Fake::groups.size(), 3u * 2);
}

TEST_F(NcclCollectives, AllToAllIsOneGroupOfSendsAndReceives) {
  run_nccl(3, {}, [](Ranks& c) {
    ExchangedValues<f16> halves(c.rank(), c.size(), 5);
    all_to_all(c, halves.list()).wait();
    for (const auto& [received, expected] : ranges::views::zip(halves.receive, halves.expected))
      EXPECT_EQ(static_cast<float>(received), static_cast<float>(expected));
  });
  EXPECT_EQ(kinds(), (std::vector{Kind::send, Kind::send, Kind::receive}));  // rank 1 sends nothing
  EXPECT_EQ(exchanges(), 3u + 1 + 2);                                        // empty messages are not sent
  EXPECT_EQ(Fake::groups.size(), 3u);
}

TEST_F(NcclCollectives, AreSplitIntoGroupsThatFitNcclsLimit) {
  constexpr std::size_t many = 3000;
  run_nccl(2, {}, [](Ranks& c) {
    const Counts counts(2, 1);
    Floats full(2 * many);
    Floats local(many, static_cast<float>(c.rank()));
    std::vector<Segment<float>> segments;
    for (std::size_t i = 0; i < many; ++i) segments.push_back({local.data() + i, full.data() + 2 * i, counts});
    all_gather(c, segments).wait();
    for (const auto& [i, value] : ranges::views::enumerate(full)) EXPECT_EQ(value, static_cast<float>(i % 2));
  });
  EXPECT_EQ(Fake::groups.size(), 2u * 3);
}

TEST_F(NcclCollectives, AddSumsLargerThanStagingMemory) {
  constexpr std::int64_t capacity = NcclRank::staging_bytes / static_cast<std::int64_t>(sizeof(float));
  run_nccl(2, {}, [](Ranks& c) {
    const Counts counts{capacity + 100, 50};
    Floats full(static_cast<std::size_t>(capacity) + 150, static_cast<float>(c.rank() + 1));
    Floats local(static_cast<std::size_t>(count_of(counts, c.rank())), 10.0f);
    reduce_scatter<float>(c, std::vector<Segment<float>>{{local.data(), full.data(), counts}}, Write::accumulate)
        .wait();
    EXPECT_EQ(std::count(local.begin(), local.end(), 13.0f), static_cast<std::ptrdiff_t>(local.size()));
  });
}

TEST_F(NcclCollectives, AddSumsInOneGroupIfContributionsAreSpent) {
  constexpr std::int64_t capacity = NcclRank::staging_bytes / static_cast<std::int64_t>(sizeof(float));
  const auto sums = [](const Counts& counts, Contributions contributions) {
    Fake::groups.clear();
    run_nccl(2, {}, [&](Ranks& c) {
      Floats full(static_cast<std::size_t>(counts[0] + counts[1]), static_cast<float>(c.rank() + 1));
      Floats local(static_cast<std::size_t>(count_of(counts, c.rank())), 10.0f);
      const std::vector<Segment<float>> segments{{local.data(), full.data(), counts}};
      reduce_scatter<float>(c, segments, Write::accumulate, {}, contributions).wait();
      EXPECT_EQ(std::count(local.begin(), local.end(), 13.0f), static_cast<std::ptrdiff_t>(local.size()));
    });
  };
  sums({capacity + 100, capacity + 100}, Contributions::spent);
  EXPECT_EQ(kinds(), (std::vector{Kind::reduce_scatter}));
  sums({capacity + 100, 50}, Contributions::spent);
  EXPECT_EQ(kinds(), (std::vector{Kind::reduce, Kind::reduce}));
  EXPECT_EQ(Fake::groups.size(), 2u);
  sums({capacity + 100, capacity + 100}, Contributions::kept);  // in two parts, each of which fits staging memory
  EXPECT_EQ(kinds(), (std::vector{Kind::reduce, Kind::reduce, Kind::reduce, Kind::reduce}));
  EXPECT_EQ(Fake::groups.size(), 4u);
}

TEST_F(NcclCollectives, SumFloatsInRankOrderIfRequested) {
  for (const int ranks : {1, 2, 3, 5}) {
    Fake::groups.clear();
    run_nccl(ranks, {}, [](Ranks& c) {
      SumsInRankOrderWhereAsked::check(c);
      AddsRankByRankToWhatIsThere::check(c);
      for (const Write write : {Write::overwrite, Write::accumulate})
        SumsSpentContributions::check_counts(c, uneven_counts(c.size(), 100), write, SumOrder::ranks);
    });
    EXPECT_EQ(exchanges() > 0, ranks > 1) << ranks;
  }
}

/// Floats are copied neither to send buffers nor to summation buffers.
TEST_F(NcclCollectives, SendFloatsInPlaceWithoutStagingCopies) {
  const float* whole = nullptr;
  run_nccl(2, {}, [&](Ranks& c) {
    const Counts counts(2, 10);
    Floats full(20, 1.0f);
    if (c.rank() == 0) whole = full.data();
    const std::vector<Segment<float>> in_place{{full.data() + 10 * c.rank(), full.data(), counts}};
    reduce_scatter<float>(c, in_place, Write::overwrite, {}, Contributions::kept, SumOrder::ranks).wait();
    for (const auto& [i, value] : ranges::views::enumerate(full))
      EXPECT_EQ(value, static_cast<int>(i / 10) == c.rank() ? 2.0f : 1.0f);
  });
  EXPECT_EQ(exchanges(), 4u);
  for (const auto& [rank, calls] : Fake::groups)
    for (const nccl::Call& call : calls)
      if (rank == 0 && call.kind == Kind::send) {
        EXPECT_EQ(call.from, reinterpret_cast<const std::byte*>(whole + 10));
      }
}

TEST_F(NcclCollectives, AddSumsInRankOrderInPartsThatFitStagingMemory) {
  constexpr std::int64_t most = NcclRank::staging_bytes / (2 * static_cast<std::int64_t>(sizeof(float)));
  run_nccl(2, {}, [](Ranks& c) {
    const Counts counts{2 * most + 100, 50};
    Floats full(total_of(counts), c.rank() == 0 ? 1e8f : -1e8f);
    Floats local(static_cast<std::size_t>(count_of(counts, c.rank())), 1.0f);  // rounded away next to 1e8
    const std::vector<Segment<float>> segments{{local.data(), full.data(), counts}};
    reduce_scatter<float>(c, segments, Write::accumulate, {}, Contributions::kept, SumOrder::ranks).wait();
    EXPECT_EQ(std::count(local.begin(), local.end(), 0.0f), static_cast<std::ptrdiff_t>(local.size()));
  });
  EXPECT_EQ(exchanges(), 2u * 4);  // rank 1's contribution in three parts, rank 0's in one: sent and received
  EXPECT_EQ(Fake::groups.size(), 2u * 3);
}

TEST_F(NcclCollectives, GatherAndBroadcastBytesOfAnySize) {
  run_nccl(3, {}, [](Ranks& c) {
    const auto size = static_cast<std::size_t>(NcclRank::value_bytes) * 2 + 5;
    const std::vector<std::byte> mine(size, std::byte(c.rank()));
    std::vector<std::byte> all(3 * size);
    gather_bytes(c, mine, all);
    for (const auto& [i, byte] : ranges::views::enumerate(all)) ASSERT_EQ(byte, std::byte(i / size));
    std::vector<std::byte> sent(size, std::byte(c.rank() == 1 ? 7 : 0));
    broadcast(c, sent, 1);
    EXPECT_EQ(sent, std::vector<std::byte>(size, std::byte(7)));
  });
}

TEST_F(NcclCollectives, RunBetweenTheCallersEventsAndTheQueuesThatWait) {
  run_nccl(3, {}, [](Ranks& c) {
    const Counts counts(3, 100);
    Floats local(100);
    Floats full(300);
    Floats found(300);
    QueuedQueue compute("compute");
    for (int round = 1; round <= 20; ++round) {
      write_later(compute, local, static_cast<float>(c.rank() + 10 * round), milliseconds(round % 3));
      after(c, compute.record());
      auto gathered = all_gather(c, std::vector<Segment<float>>{{local.data(), full.data(), counts}});
      gathered.wait(compute);
      copy(compute, full, found);
      synchronize(c, compute);
      expect_ranks_values(found, 100, 10 * round);
    }
  });
}

TEST_F(NcclCollectives, UseScratchOfFixedSize) {
  run_nccl(2, {}, [](Ranks& c) { EXPECT_EQ(c.scratch_bytes(), Ranks::scratch_bytes_for(2)); });
  EXPECT_EQ(Simulated<>(simulated_world<Ranks>(8, 3)).scratch_bytes(), Ranks::scratch_bytes_for(8));
}

TEST_F(NcclCollectives, SharedMemoryIsZeroedAndMayOutliveTheCommunicator) {
  std::vector<std::shared_ptr<std::byte>> kept(2);
  run_nccl(2, {}, [&](Ranks& c) {
    constexpr std::int64_t bytes = (3 << 20) + 5;
    auto& memory = kept[static_cast<std::size_t>(c.rank())];
    memory = shared_memory(c, bytes);
    EXPECT_EQ(std::count(memory.get(), memory.get() + bytes, std::byte{0}), bytes);
    EXPECT_EQ(shared_memory(c, 0), nullptr);
  });
  EXPECT_EQ(Fake::held["memory"], 2);
  kept.clear();
}

class NcclLaunch : public OnFakeNccl {};

TEST_F(NcclLaunch, RunsAtRanksGivenByAnotherLauncher) {
  const int port = free_port();
  Threads<>::run(3, {}, [&](auto& hosts) {
    const int status = Ranks::run(Fake::table(), place_of(hosts.rank(), 3, port), {}, [&](Ranks& c) {
      EXPECT_EQ(c.rank(), hosts.rank());
      EXPECT_EQ(sum_over_ranks(c, 1), 3);
      return 5;
    });
    EXPECT_EQ(status, 5);
  });
}

TEST_F(NcclLaunch, AllRanksReportThatRankZeroCannotMakeAnId) {
  nccl::Table broken = Fake::table();
  broken.get_unique_id = [](nccl::Id&) { return nccl::Result::system_error; };
  const int port = free_port();
  Threads<>::run(2, {}, [&](auto& hosts) {
    test::expect_parts(
        test::error_of<InputError>([&] { Ranks::run(broken, place_of(hosts.rank(), 2, port), {}, [](auto&) {}); }),
        {"rank 0: NCCL cannot make a unique id: ", "; the fake knows why"});
  });
}

TEST_F(NcclLaunch, RunsOneRankWithoutALauncher) {
  if (launched_by_torchrun()) GTEST_SKIP() << "RANK or WORLD_SIZE is set";
  EXPECT_EQ(Ranks::run(Fake::table(), {}, [](Ranks& c) { EXPECT_EQ(c.size(), 1); }), 0);
}

using test::expect_parts;
class NcclFaults : public OnFakeNccl {
 protected:
  /// Returns the message of the first CollectiveError of `run`.
  static std::string failure_of(const std::function<void()>& run) { return test::error_of<CollectiveError>(run); }
};

TEST_F(NcclFaults, InitialisationTimesOutIfARankNeverJoins) {
  nccl::Id id{};
  Fake::table().get_unique_id(id);
  const std::string text = failure_of(
      [&] { Ranks alone(Fake::table(), {.rank = 0, .size = 2, .id = id}, {.start_deadline = milliseconds(50)}); });
  expect_parts(text, {"the other ranks in NCCL's initialisation", "the deadline of the start is 0.050 s"});
}

TEST_F(NcclFaults, CommunicatorIsUnusableAfterAMissedDeadline) {
  Fake::instance().tells_of_aborts = false;
  std::atomic<bool> seen = false;
  run_nccl(2, {.deadline = milliseconds(100), .start_deadline = milliseconds(100)}, [&](Ranks& c) {
    while (c.rank() == 1 && !seen) std::this_thread::sleep_for(milliseconds(1));
    if (c.rank() == 1) return;
    expect_parts(failure_of([&] { barrier(c, {.what = "step", .unit = 4}); }),
                 {"rank 0, barrier of step, unit 4", "waited 0.1", "the other ranks in NCCL's a group"});
    expect_parts(failure_of([&] { barrier(c); }), {"cannot be used", "waited 0.1"});
    seen = true;
  });
}

TEST_F(NcclFaults, ALostRankAbortsTheOthers) {
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<int> met = 0;
  const auto rank = [&](Ranks& c) {
    barrier(c);
    ++met;
    while (met < 3) std::this_thread::yield();
    if (c.rank() == 2) throw InputError("no such file");
    const auto wait_for_ever = [&] {
      for (;;) barrier(c);
    };
    expect_parts(failure_of(wait_for_ever), {"NCCL: ", "remote error; the fake knows why"});
  };
  EXPECT_THROW(run_nccl(3, {}, rank), InputError);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

/// On one host NCCL reports nothing; the rendezvous' sockets do.
TEST_F(NcclFaults, ALostRankOfTheSameHostAbortsTheOthersWithItsReason) {
  Fake::instance().tells_of_aborts = false;
  const int port = free_port();
  const auto rank = [&](auto& hosts) {
    Ranks::run(Fake::table(), place_of(hosts.rank(), 3, port), {}, [&](Ranks& c) {
      barrier(c);
      if (c.rank() == 2) throw InputError("no such file");
      const auto begin = Clock::now();
      expect_parts(failure_of([&] { barrier(c); }), {"barrier", "rank 2 failed: no such file"});
      EXPECT_LT(Clock::now() - begin, milliseconds(1500)) << "only the watch's thread noticed";
      expect_parts(failure_of([&] { barrier(c); }), {"cannot be used: rank 2 failed"});
    });
  };
  EXPECT_THROW(Threads<>::run(3, {}, rank), InputError);
}

TEST_F(NcclFaults, SynchronizeTimesOutIfTheDeviceHangs) {
  QueuedQueue stuck("stuck");
  std::atomic<bool> released = false;
  hold(stuck, released);
  run_nccl(1, {.device_deadline = milliseconds(50)}, [&](Ranks& c) {
    expect_parts(failure_of([&] { synchronize(c, stuck); }), {"for the device or the other ranks", "0.050 s"});
    released = true;
  });
}

TEST_F(NcclFaults, FakeNcclReportsBothRanksOfMismatchedCalls) {
  const auto disagree = [&](const std::function<void(Ranks&, bool odd)>& call) {
    Fake::problems.clear();
    failure_of([&] { run_nccl(3, {.start_deadline = milliseconds(500)}, [&](Ranks& c) { call(c, c.rank() == 2); }); });
    std::string all;
    for (const std::string& problem : std::exchange(Fake::problems, {})) all += problem + "\n";
    return all;
  };
  const auto gather = [](Ranks& c, const Counts& counts) {
    Floats full(total_of(counts));
    Floats local(full.size());
    all_gather(c, std::vector<Segment<float>>{{local.data(), full.data(), counts}}).wait();
  };
  expect_parts(disagree([&](Ranks& c, bool odd) { gather(c, Counts(3, odd ? 5 : 4)); }),
               {"rank 0 has all_gather of 4 f32", "rank 2 has all_gather of 5 f32"});
  expect_parts(disagree([&](Ranks& c, bool odd) { odd ? barrier(c) : gather(c, Counts(3, 4)); }),
               {"rank 0 has all_gather of 4 f32", "rank 2 has all_gather of 1 u8"});
  expect_parts(disagree([&](Ranks& c, bool odd) {
                 const Counts counts(3, 6);
                 Floats full(18);
                 Floats local(6);
                 const std::vector<Segment<float>> one{{local.data(), full.data(), counts}};
                 odd ? reduce_scatter<bf16>(c, one, Write::overwrite).wait()
                     : reduce_scatter<float>(c, one, Write::overwrite, {}, Contributions::kept, SumOrder::ranks).wait();
               }),
               {"rank 0 has send of 6 f32, peer 2; rank 2 has receive of 6 bf16, peer 0"});
}

}  // namespace
}  // namespace fsdp::comm

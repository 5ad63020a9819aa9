// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <tessera/comm/mpi.hpp>
#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/testing/communicator.hpp>

#include <support/errors.hpp>
#include "mpi_world.hpp"

namespace fsdp::comm {
namespace {

using namespace testing;

static_assert(check_communicator<Mpi<>>() && supports_wire<Mpi<>, bf16>);

/// Runs a case on the first `ranks` processes while the others wait. Cases that need more processes are skipped.
struct FirstProcesses {
  template <class F>
  static int run(int ranks, const Options& options, F f) {
    Mpi<>& world = mpi_world();
    if (ranks > world.size()) return 0;
    Mpi<> first = split(world, [ranks](int rank) { return rank < ranks ? 0 : 1; });
    const bool windows = first.monitor().options.windows;
    first.monitor().options = options;
    first.monitor().options.windows = windows;
    if (world.rank() < ranks) f(first);
    barrier(world);
    return 0;
  }
};

template <class Behaviour>
class MpiBackend : public ::testing::Test {};
TYPED_TEST_SUITE(MpiBackend, AllBehaviours, BehaviourName);

TYPED_TEST(MpiBackend, BehavesOnASubCommunicator) {
  Mpi<> part = split(mpi_world(), [](int rank) { return rank == 0 ? 0 : 1; });
  TypeParam::check(part);
}

/// Allocates all values in a shared window that this process and its peers map.
class InWindows {
 public:
  explicit InWindows(Mpi<>& communicator) {
    ValueMemory::shared = [&communicator](std::int64_t bytes) { return shared_memory(communicator, bytes); };
  }
  InWindows(const InWindows&) = delete;
  InWindows& operator=(const InWindows&) = delete;
  ~InWindows() { ValueMemory::shared = nullptr; }
};

TYPED_TEST(MpiBackend, BehavesWithSharedWindows) {
  const InWindows in_windows(mpi_world());
  TypeParam::check(mpi_world());
}

TYPED_TEST(MpiBackend, BehavesWithSharedWindowsOfASubCommunicator) {
  Mpi<> part = split(mpi_world(), [](int rank) { return rank == 0 ? 0 : 1; });
  const InWindows in_windows(part);
  TypeParam::check(part);
}

TYPED_TEST(MpiBackend, BehavesIfOnlySomeRanksUseSharedWindows) {
  if (mpi_world().rank() % 2 == 1) return TypeParam::check(mpi_world());
  const InWindows in_windows(mpi_world());
  TypeParam::check(mpi_world());
}

TEST(Mpi, HasScratchOfFixedSize) {
  EXPECT_EQ(mpi_world().scratch_bytes(), Mpi<>::scratch_bytes_for(mpi_world().size()));
  EXPECT_EQ(Simulated<>(simulated_world<Mpi<>>(8, 3)).scratch_bytes(), Mpi<>::scratch_bytes_for(8));
  EXPECT_EQ(Mpi<>::scratch_bytes_for(1), 0);
  EXPECT_LE(Mpi<>::scratch_bytes_for(8), 5 << 20);
}

TEST(Mpi, MismatchedCollectivesAreAnErrorEvenWithoutChecks) {
  Mpi<>& world = mpi_world();
  if (world.size() == 1) return;
  const auto begin = std::chrono::steady_clock::now();
  for (const bool windows : {true, false}) {
    world.monitor().options.windows = windows;
    Mpi<> part = split(world, [](int) { return 0; });
    const Counts counts(static_cast<std::size_t>(world.size()), 1);
    const InWindows in_windows(world);
    Floats values(counts.size() + 1);
    const std::vector<Segment<float>> one{{values.data(), values.data() + 1, counts}};
    const std::string said = test::error_of<CollectiveError>([&] {
      if (part.rank() == 0) return all_gather(part, one).wait();
      reduce_scatter<float>(part, one, Write::overwrite).wait();
    });
    if (part.rank() == 0 || !said.empty()) test::expect_parts(said, {"ranks disagree: rank "});
    barrier(world);
  }
  world.monitor().options.windows = true;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

TEST(Mpi, MismatchedSizesAndRootsFailOnEveryRankEvenWithoutChecks) {
  Mpi<>& world = mpi_world();
  if (world.size() == 1) return;
  enum class Call { gather, sum, all_sum, broadcast, root };
  constexpr std::int64_t longer = 70'000;
  for (const bool windows : {true, false})
    for (const Call call : {Call::gather, Call::sum, Call::all_sum, Call::broadcast, Call::root}) {
      const int longer_rank = call == Call::broadcast ? 0 : world.size() - 1;
      SCOPED_TRACE(message(windows ? "windows, call " : "messages, call ", static_cast<int>(call)));
      world.monitor().options.windows = windows;
      Mpi<> part = split(world, [](int) { return 0; });
      const Counts counts(static_cast<std::size_t>(world.size()), world.rank() == longer_rank ? longer : 3);
      const InWindows in_windows(world);
      Floats full(total_of(counts));
      const std::vector<Segment<float>> list{{full.data() + world.rank() * counts[0], full.data(), counts}};
      const auto bytes = std::as_writable_bytes(std::span(full.data(), static_cast<std::size_t>(counts[0])));
      const auto call_it = [&] {
        if (call == Call::gather) all_gather(part, list).wait();
        if (call == Call::sum) reduce_scatter<float>(part, list, Write::overwrite).wait();
        if (call == Call::all_sum) all_reduce<float>(part, list).wait();
        if (call == Call::broadcast) broadcast(part, bytes, 0);
        if (call == Call::root) broadcast(part, bytes.first(8), world.rank() == longer_rank ? 1 : 0);
        barrier(part);
      };
      test::expect_parts(test::error_of<CollectiveError>(call_it), {"ranks disagree: rank "});
      barrier(world);
    }
  world.monitor().options.windows = true;
}

TEST(Mpi, WaitsForeverIfTheDeadlineIsTheMaximum) {
  Mpi<>& world = mpi_world();
  Mpi<> part = split(world, [](int) { return 0; });
  part.monitor().options.deadline = std::chrono::milliseconds::max();
  if (part.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_NO_THROW(barrier(part));
}

TEST(Mpi, ExchangesOfMismatchedLengthsAreAnErrorEvenWithoutChecks) {
  Mpi<>& world = mpi_world();
  if (world.size() == 1) return;
  for (const bool windows : {true, false}) {
    world.monitor().options.windows = windows;
    Mpi<> part = split(world, [](int) { return 0; });
    const InWindows in_windows(world);
    const Counts two(static_cast<std::size_t>(world.size()), 2);
    Counts fewer = two;
    if (world.rank() == 0) fewer[1] = 3;
    Floats send(total_of(two)), receive(total_of(fewer));
    const std::string said = test::error_of<CollectiveError>([&] {
      all_to_all(part, std::vector<Exchange<float>>{{send.data(), two, receive.data(), fewer}}).wait();
      barrier(part);
    });
    if (part.rank() == 0 || !said.empty()) test::expect_parts(said, {"ranks disagree: rank 1", "sends rank 0"});
    barrier(world);
  }
  world.monitor().options.windows = true;
}

TEST(Mpi, WindowsAreUnmappedByAllRanksThatMappedThem) {
  Mpi<>& world = mpi_world();
  const bool has_windows = shared_memory(world, 1) != nullptr;
  const auto windows = [] {
    std::ifstream maps("/proc/self/maps");
    int found = 0;
    for (std::string line; std::getline(maps, line);) found += line.find("tessera-window") != std::string::npos;
    return found;
  };
  const Counts counts(static_cast<std::size_t>(world.size()), 1 << 10);
  Floats full(total_of(counts));
  const auto gather = [&] {
    const InWindows in_windows(world);
    const Floats local(1 << 10);
    all_gather(world, std::vector<Segment<float>>{{const_cast<float*>(local.data()), full.data(), counts}}).wait();
    EXPECT_GE(windows(), has_windows ? 2 : 0);
    barrier(world);
  };
  for (int i = 0; i < 5; ++i) gather();
  barrier(world);  // all ranks have released their windows; the next transfer unmaps them
  barrier(world);
  EXPECT_EQ(windows(), 0);
}

TEST(Mpi, MissedDeadlineNamesTheOperationWorldRankAndHost) {
  Mpi<>& world = mpi_world();
  if (world.size() == 1) return;
  const int late = world.size() - 1;
  Mpi<> part = split(world, [&](int rank) { return rank == 0 && world.size() > 2 ? 0 : 1; });
  part.monitor().options.deadline = std::chrono::milliseconds(100);
  if (world.rank() != late && part.size() > 1) {
    test::expect_parts(test::error_of<CollectiveError>([&] { barrier(part, {.what = "test", .unit = 5}); }),
                       {"barrier of test, unit 5",
                        message("rank ", late, " (has not come; host ", world.monitor().hosts.back(), ")")});
    EXPECT_THROW(barrier(part), CollectiveError);
  }
  barrier(world);
}

}  // namespace
}  // namespace fsdp::comm

namespace fsdp::testing {

INSTANTIATE_TYPED_TEST_SUITE_P(MpiBackend, CommunicatorSuite, comm::FirstProcesses);

}  // namespace fsdp::testing

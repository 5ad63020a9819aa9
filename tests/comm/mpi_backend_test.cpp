// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <comm/mpi.hpp>

#include "contract_behaviours.hpp"
#include "mpi_world.hpp"

namespace fsdp::comm {
namespace {

static_assert(check_communicator<Mpi<>>() && supports_wire<Mpi<>, bf16>);

template <class Behaviour>
class MpiBackend : public ::testing::Test {};
TYPED_TEST_SUITE(MpiBackend, AllBehaviours, BehaviourName);

TYPED_TEST(MpiBackend, OfAllProcesses) { TypeParam::check(mpi_world()); }

TYPED_TEST(MpiBackend, APartOfAllProcesses) {
  Mpi<> part = split(mpi_world(), [](int rank) { return rank == 0 ? 0 : 1; });
  TypeParam::check(part);
}

/// Every value lies in a window, which this process and its peers map.
class InWindows {
 public:
  explicit InWindows(Mpi<>& communicator) {
    ValueMemory::shared = [&communicator](std::int64_t bytes) { return shared_memory(communicator, bytes); };
  }
  InWindows(const InWindows&) = delete;
  InWindows& operator=(const InWindows&) = delete;
  ~InWindows() { ValueMemory::shared = nullptr; }
};

TYPED_TEST(MpiBackend, ThroughWindows) {
  const InWindows in_windows(mpi_world());
  TypeParam::check(mpi_world());
}

TYPED_TEST(MpiBackend, ThroughTheWindowsOfAPart) {
  Mpi<> part = split(mpi_world(), [](int rank) { return rank == 0 ? 0 : 1; });
  const InWindows in_windows(part);
  TypeParam::check(part);
}

TYPED_TEST(MpiBackend, ThroughWindowsOfSomeRanks) {
  if (mpi_world().rank() % 2 == 1) return TypeParam::check(mpi_world());
  const InWindows in_windows(mpi_world());
  TypeParam::check(mpi_world());
}

TEST(Mpi, HoldsScratchOfAFixedSize) {
  EXPECT_EQ(mpi_world().scratch_bytes(), Mpi<>::scratch_bytes_for(mpi_world().size()));
  EXPECT_EQ(Mpi<>::scratch_bytes_for(1), 0);
  EXPECT_LE(Mpi<>::scratch_bytes_for(8), 5 << 20);
}

TEST(Mpi, AMissedDeadlineNamesWhatAndWhom) {
  Mpi<>& world = mpi_world();
  if (world.size() == 1) return;
  const int late = world.size() - 1;
  Mpi<> part = split(world, [](int) { return 0; });
  part.monitor().options.deadline = std::chrono::milliseconds(100);
  if (world.rank() != late) {
    try {
      barrier(part, {.what = "test", .unit = 5});
      ADD_FAILURE() << "nobody missed the deadline";
    } catch (const CollectiveError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("barrier of test, unit 5"), std::string::npos) << text;
      EXPECT_NE(text.find(message("rank ", late, " (has not come)")), std::string::npos) << text;
    }
    EXPECT_THROW(barrier(part), CollectiveError);
  }
  barrier(world);
}

}  // namespace
}  // namespace fsdp::comm

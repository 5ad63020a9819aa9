// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/mpi_rank.hpp>

#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/testing/contract_behaviours.hpp>

#include "mpi_world.hpp"
#include "queued_values.hpp"

namespace fsdp::comm {
namespace {

using Ranks = Mpi<QueuedDevice>;

static_assert(check_communicator<Ranks>() && QueuedCommunicator<Ranks> && supports_wire<Ranks, bf16>);

template <class Behaviour>
class StagedMpi : public Ordered {};
TYPED_TEST_SUITE(StagedMpi, AllBehaviours, BehaviourName);

TYPED_TEST(StagedMpi, BehavesOnAllProcesses) {
  Ranks c = mpi_world().on<QueuedDevice>();
  const InDeviceMemory values;
  TypeParam::check(c);
}

class StagedMpiOrder : public Ordered {};

TEST_F(StagedMpiOrder, CollectivesStartAfterTheCallersEvents) {
  Ranks c = mpi_world().on<QueuedDevice>();
  const InDeviceMemory values;
  const auto n = static_cast<std::size_t>(c.size());
  const Counts counts(n, 100);
  Floats full(100 * n);
  Floats local(100);
  QueuedQueue compute("compute");
  write_later(compute, full, static_cast<float>(c.rank() + 1), std::chrono::milliseconds(5));
  after(c, compute.record());
  auto sum =
      reduce_scatter<float>(c, std::vector<Segment<float>>{{local.data(), full.data(), counts}}, Write::overwrite);
  sum.wait(compute);
  synchronize(c, compute);
  for (float value : local) EXPECT_EQ(value, static_cast<float>(n * (n + 1) / 2));
}

TEST(StagedMpiMemory, UsesNoDeviceMemoryForScratch) {
  EXPECT_EQ(mpi_world().on<QueuedDevice>().scratch_bytes(), 0);
  EXPECT_EQ(Simulated<>(simulated_world<Ranks>(8, 3)).scratch_bytes(), 0);
}

}  // namespace
}  // namespace fsdp::comm

// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/mesh.hpp>
#include <tessera/comm/simulated.hpp>
#include <tessera/comm/threads.hpp>

namespace fsdp::comm {
namespace {

using Counts = std::vector<std::int64_t>;

TEST(Simulated, RecordsAndCountsTransfersWithoutTouchingMemory) {
  Simulated<> c({.ranks = 4, .rank = 1}, {.record = true});
  const Counts counts{10, 20, 0, 10};
  auto* const full = reinterpret_cast<float*>(device::Meta::unbacked(0));
  auto* const local = reinterpret_cast<float*>(device::Meta::unbacked(4096));
  const std::vector<Segment<float>> segments{{local, full, counts}};

  all_gather(c, segments, {.what = "weights", .unit = 0}).wait();
  EXPECT_EQ(c.monitor().totals.copied_bytes, 40 * 4);  // 20 from peers, and its own 20, which are not in place
  reduce_scatter<bf16>(c, segments, Write::accumulate).wait();
  EXPECT_EQ(c.monitor().totals.copied_bytes, 40 * 4 + 20 * 3 * 2);
  all_reduce<float>(c, std::vector<Segment<float>>{{full + 10, full, counts}}).wait();
  EXPECT_EQ(c.monitor().totals.copied_bytes, 40 * 4 + 20 * 3 * 2 + 20 * 3 * 4 + 20 * 4);

  const Counts sent{3, 5, 0, 2}, received{1, 5, 7, 0};
  all_to_all(c, std::vector<Exchange<float>>{{local, sent, full, received}}, {.what = "heads", .unit = 1}).wait();
  EXPECT_EQ(c.monitor().totals.copied_bytes, 40 * 4 + 20 * 3 * 2 + 20 * 3 * 4 + 20 * 4 + 13 * 4);

  const std::vector<Record> expected{
      {0, Op::all_gather, DType::f32, 160, {"weights", 0}},
      {1, Op::reduce_scatter, DType::bf16, 80, {}},
      {2, Op::all_reduce, DType::f32, 160, {}},
      {3, Op::all_to_all, DType::f32, 52, {"heads", 1}},
  };
  EXPECT_EQ(c.monitor().records, expected);
}

TEST(Simulated, AssumesTheSameValuesOnAllRanks) {
  Simulated<> c({.ranks = 8, .rank = 3});
  EXPECT_EQ(sum_over_ranks(c, 2.5), 20.0);
  std::int64_t most = 7;
  reduce(c, std::span(&most, 1), Reduction::max);
  EXPECT_EQ(most, 7);
}

TEST(Simulated, PlacesRanksOfAMeshAsThreadsDo) {
  Simulated<> world({.ranks = 12, .rank = 7});
  const Mesh mesh(world, 4);
  EXPECT_EQ(mesh.shard_axis().size(), 4);
  EXPECT_EQ(mesh.shard_axis().rank(), 3);
  EXPECT_EQ(mesh.replicate_axis().size(), 3);
  EXPECT_EQ(mesh.replicate_axis().rank(), 1);
}

TEST(Simulated, RefusesARankOutOfRange) {
  EXPECT_THROW(Simulated<>({.ranks = 2, .rank = 2}), InputError);
  EXPECT_THROW(Simulated<>({.ranks = 1 << 30}), InputError);
}

TEST(Mesh, ShardsOverConsecutiveRanksAndReplicatesAcross) {
  Threads<>::run(6, {}, [](Threads<>& world) {
    const int rank = world.rank();
    Mesh mesh(world, 2);
    EXPECT_EQ(mesh.shard_axis().size(), 2);
    EXPECT_EQ(mesh.shard_axis().rank(), rank % 2);
    EXPECT_EQ(mesh.replicate_axis().size(), 3);
    EXPECT_EQ(mesh.replicate_axis().rank(), rank / 2);
    EXPECT_EQ(sum_over_ranks(mesh.shard_axis(), rank), 4 * (rank / 2) + 1);
    EXPECT_EQ(sum_over_ranks(mesh.replicate_axis(), rank), 3 * (rank % 2) + 6);
  });
}

TEST(Mesh, RefusesAGroupSizeThatDoesNotDivideTheRanks) {
  EXPECT_THROW(Threads<>::run(3, {}, [](Threads<>& world) { Mesh(world, 2); }), InputError);
}

}  // namespace
}  // namespace fsdp::comm

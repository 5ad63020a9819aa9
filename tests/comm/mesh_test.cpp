// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/mesh.hpp>

#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>

namespace fsdp::comm {
namespace {

TEST(Mesh, RowsShardConsecutiveRanksAndColumnsReplicate) {
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

TEST(Mesh, RefusesGroupsThatDoNotFill) {
  EXPECT_THROW(Threads<>::run(3, {}, [](Threads<>& world) { Mesh(world, 2); }), InputError);
}

}  // namespace
}  // namespace fsdp::comm

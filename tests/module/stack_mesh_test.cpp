// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/stack_mesh.hpp>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/module/stack.hpp>

namespace fsdp {
namespace {

using Comm = comm::Threads<>;

/// Groups of two ranks, whose facts are given.
struct InGroups : FullyShard<> {
  static constexpr int mesh_axes = 2;
  int ranks_per_group() const { return 2; }
};

sharding::Axes axes_of_four_ranks(const sharding::Facts& facts) {
  std::vector<sharding::Axes> axes(4);
  Comm::run(4, {}, [&](Comm& world) {
    const StackMesh<Stack<InGroups, Comm, Fp32, tiling::Untiled>> mesh(world, {});
    axes[static_cast<std::size_t>(world.rank())] = mesh.axes(facts);
  });
  return axes[0];
}

TEST(StackMesh, CutsOverAGroupOrKeepsWeightsInIt) {
  const sharding::Axes hybrid = axes_of_four_ranks({.across = sharding::Across::all_reduce});
  EXPECT_EQ(hybrid.shard, 2);
  EXPECT_EQ(hybrid.across, 2);
  const sharding::Axes kept = axes_of_four_ranks({.group_after_forward = true});
  EXPECT_EQ(kept.shard, 4);
  EXPECT_EQ(kept.keep, 2);
}

TEST(StackMesh, RefusesGroupsThatAreUsedForNothing) {
  try {
    axes_of_four_ranks({});
    FAIL() << "all ranks would share one model, and nobody would know";
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()).find("sharding: a strategy works on groups of 2 ranks, and its facts use them"),
              0u)
        << error.what();
  }
}

}  // namespace
}  // namespace fsdp

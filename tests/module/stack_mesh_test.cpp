// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/stack_mesh.hpp>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>

namespace fsdp {
namespace {

using Comm = comm::Threads<>;

/// Groups of two ranks, whose facts are given.
struct InGroups : FullyShard<> {
  static constexpr int mesh_axes = 2;
  int ranks_per_group() const { return 2; }
};

template <class Strategy = InGroups>
sharding::Axes axes_of_four_ranks(const sharding::Facts& facts) {
  std::vector<sharding::Axes> axes(4);
  Comm::run(4, {}, [&](Comm& world) {
    const StackMesh<Stack<Strategy, Comm, Fp32, tiling::Untiled>> mesh(world, {});
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

/// The same, with the optimizer's state cut over groups by the type.
struct StateAcross : InGroups {
  using Across = buffer::Shard;
};

template <class Strategy = InGroups>
void expect_refused(const sharding::Facts& facts, const std::string& begin) {
  try {
    axes_of_four_ranks<Strategy>(facts);
    ADD_FAILURE() << "accepted, and not refused with: " << begin;
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()).find(begin), 0u) << error.what();
  }
}

TEST(StackMesh, RefusesGroupsThatAreUsedForNothing) {
  expect_refused({}, "sharding: the mesh has groups of 2 ranks, and the strategy's facts use them");
}

/// Each rank would step a part of its weights, which nothing gathers.
TEST(StackMesh, RefusesATypeAndFactsThatPlaceTheOptimizersStateDifferently) {
  expect_refused<StateAcross>({.across = sharding::Across::all_reduce},
                              "sharding: the strategy's type places optimizer state across groups as Shard, and its "
                              "facts.across is not sharding::Across::shard");
  expect_refused({.across = sharding::Across::shard},
                 "sharding: the strategy's type places optimizer state across groups as Replicate, and its "
                 "facts.across is sharding::Across::shard");
}

TEST(StackMesh, RefusesFactsOfGroupsWhereThereAreNone) {
  for (const sharding::Facts& facts :
       {sharding::Facts{.across = sharding::Across::all_reduce}, sharding::Facts{.group_after_forward = true}})
    expect_refused<FullyShard<>>(facts, "sharding: a strategy's facts state what crosses groups of ranks");
}

/// Some values have groups, and others none; those of a type that holds such types, too.
TEST(StackMesh, HasTheAxesOfTheValue) {
  static_assert(axes_by_value<RunTimeAny> && axes_by_value<RunTimeStrategy<RunTimeAny>> &&
                axes_by_value<RunTimeStrategy<RunTimeGrouped, RunTimeAny>> && axes_by_value<Offload<RunTimeAny>> &&
                !axes_by_value<RunTimeSharded> && !axes_by_value<RunTimeGrouped>);
  Comm::run(2, {}, [](Comm& world) {
    using Mesh = StackMesh<Stack<RunTimeStrategy<RunTimeAny>, Comm, Fp32, tiling::Untiled>>;
    EXPECT_FALSE(Mesh(world, {RunTimeAny{Replicated{}}}).has_groups());
    EXPECT_TRUE(Mesh(world, {RunTimeAny{HybridShard<RunTimeSharded>{.group = 1}}}).has_groups());
  });
}

TEST(StackMesh, RefusesAValueWhoseFactsAreNotThoseOfItsAxes) {
  const std::string none =
      "sharding: a strategy's facts state what crosses groups of ranks or stays in them, and there "
      "are none: its ranks_per_group() is 0, or the mesh has one axis";
  expect_refused<RunTimeAny>({.group_after_forward = true}, none);
  expect_refused({.across = sharding::Across::all_reduce, .whole_at_rest = true},
                 "sharding: a strategy keeps all weights on every rank (facts.whole_at_rest), so that groups");
}

}  // namespace
}  // namespace fsdp

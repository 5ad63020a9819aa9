// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/plan/ranks.hpp>

#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/buffer/owned.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>
#include <tessera/fsdp/module/stack.hpp>

namespace fsdp::plan {
namespace {

using Dry = comm::Simulated<device::Meta>;
using Owned = WithLayout<FullyShard<>, buffer::Owned>;

/// A tensor of 8 rows over 4 ranks.
template <class Sharding>
struct OnFourRanks {
  const std::vector<Unit> units = {{.name = "unit", .parameters = {{"w", {8, 64}}}}};
  Dry communicator{{.ranks = 4, .rank = 0}};
  ShardedModule<Stack<Sharding, Dry, Fp32>> module{communicator, units, {}, {}};
  std::vector<const GroupTensors*> groups = module.group_list();
};

TEST(MostLoadedRanks, HaveTheMostRowsWhereAllHoldAsMuch) {
  const OnFourRanks<FullyShard<>> evenly;
  constexpr std::array<std::int64_t, 4> rows = {3, 4, 3, 4};
  EXPECT_EQ(most_loaded_ranks(evenly.groups, 4), std::vector<int>{0});
  EXPECT_EQ(most_loaded_ranks(evenly.groups, 4, rows), std::vector<int>{1});
  EXPECT_EQ(one_of_each_load(evenly.groups, 4), std::vector<int>{0});
  EXPECT_EQ(one_of_each_load(evenly.groups, 4, rows), (std::vector<int>{0, 1}));
  EXPECT_TRUE(loads_ranks_alike(evenly.groups, 4));
  EXPECT_FALSE(loads_ranks_alike(evenly.groups, 4, rows));
}

TEST(MostLoadedRanks, AreSeveralWhereOneHoldsMoreAndOthersHaveMoreRows) {
  const OnFourRanks<Owned> owned;  // one rank has the whole tensor
  const std::vector<int> owner = most_loaded_ranks(owned.groups, 4);
  ASSERT_EQ(owner.size(), 1u);
  std::array<std::int64_t, 4> rows = {4, 4, 4, 4};
  EXPECT_EQ(most_loaded_ranks(owned.groups, 4, rows), owner);
  rows[static_cast<std::size_t>(owner.front())] = 3;
  const std::vector<int> most = most_loaded_ranks(owned.groups, 4, rows);
  EXPECT_EQ(most.size(), 2u);
  EXPECT_EQ(std::ranges::count(most, owner.front()), 1);
  EXPECT_FALSE(loads_ranks_alike(owned.groups, 4));
}

}  // namespace
}  // namespace fsdp::plan

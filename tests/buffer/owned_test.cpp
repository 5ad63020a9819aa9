// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/buffer/layout_policies.hpp>

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::buffer {
namespace {

using Groups = std::vector<TensorGroup>;

std::vector<Layout> build(const Groups& groups, int ranks, const Owned& policy = {}) {
  return policy.build(std::span<const TensorGroup>(groups), ranks);
}

/// Elements and work that each rank owns.
struct Balance {
  std::vector<std::int64_t> elements, work;
};

Balance balance_of(const Groups& groups, const std::vector<Layout>& layouts, int ranks) {
  Balance balance{.elements = std::vector<std::int64_t>(static_cast<std::size_t>(ranks)),
                  .work = std::vector<std::int64_t>(static_cast<std::size_t>(ranks))};
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::vector<int> owners(groups[g].tensors.size());
    for (int rank = 0; rank < ranks; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      balance.elements[at] += layouts[g].local_size(rank);
      std::int64_t held = 0;
      for (const TensorRange& range : layouts[g].ranges(rank)) {
        const auto tensor = static_cast<std::size_t>(range.tensor);
        EXPECT_EQ(range.begin, 0);
        EXPECT_EQ(range.count, groups[g].tensors[tensor].shape.numel());
        EXPECT_EQ(range.local % element_alignment, 0);
        EXPECT_EQ(layouts[g].offsets[tensor] % element_alignment, 0);
        ++owners[tensor];
        held += round_up(range.count, element_alignment);
        balance.work[at] += groups[g].tensors[tensor].work;
      }
      EXPECT_EQ(held, layouts[g].local_size(rank)) << "a rank's buffer holds its tensors and nothing else";
    }
    for (const auto& [owner_count, tensor] : ranges::views::zip(owners, groups[g].tensors))
      EXPECT_EQ(owner_count, tensor.shape.numel() > 0 ? 1 : 0);
    EXPECT_EQ(layouts[g].full_size,
              std::accumulate(layouts[g].local_sizes.begin(), layouts[g].local_sizes.end(), std::int64_t{0}));
  }
  return balance;
}

/// Groups of random shapes; some groups are empty.
Groups some_groups(std::mt19937& random, bool work_is_elements) {
  const auto up_to = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(0, most)(random); };
  Groups groups(static_cast<std::size_t>(1 + up_to(5)));
  for (TensorGroup& group : groups)
    for (std::int64_t i = up_to(9); i >= 0; --i) {
      const Shape shape = up_to(3) == 0 ? Shape{up_to(300)} : Shape{up_to(200), 1 + up_to(200)};
      const std::int64_t padded = round_up(shape.numel(), element_alignment);
      group.tensors.push_back({.shape = shape, .work = work_is_elements ? padded : up_to(1) * up_to(1'000'000)});
    }
  return groups;
}

TEST(Owned, KeepsTensorsWholeAndElementsPerRankWithinTheBound) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round)
    for (const int ranks : {1, 2, 3, 8, 40}) {
      const Groups groups = some_groups(random, round % 2 == 0);
      const Owned policy{.slack = 0.1 * (round % 5)};
      const Balance balance = balance_of(groups, build(groups, ranks, policy), ranks);
      std::int64_t all = 0, largest = 0;
      for (const TensorGroup& group : groups)
        for (const TensorSpec& tensor : group.tensors) {
          all += round_up(tensor.shape.numel(), element_alignment);
          largest = std::max(largest, round_up(tensor.shape.numel(), element_alignment));
        }
      const double mean = static_cast<double>(all) / ranks;
      const double bound = mean + std::max(policy.slack * mean, static_cast<double>(largest));
      EXPECT_LE(static_cast<double>(*std::ranges::max_element(balance.elements)), bound)
          << "round " << round << ", " << ranks << " ranks";
    }
}

/// Graham's bound: longest processing time first is within 4/3 of the optimum, which is at least the mean and at least
/// the longest task.
TEST(Owned, BalancesWorkWithinFourThirdsIfElementsAreTheWork) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round)
    for (const int ranks : {2, 3, 4}) {
      Groups groups(1);
      for (int i = 0; i < 6 * ranks; ++i) {  // many tensors on few ranks, so that the mean is near the optimum
        const std::int64_t elements = 64 * (1 + static_cast<std::int64_t>(random() % 50));
        groups[0].tensors.push_back({.shape = {elements}, .work = elements});
      }
      const Balance balance = balance_of(groups, build(groups, ranks), ranks);
      const auto all = std::accumulate(balance.work.begin(), balance.work.end(), std::int64_t{0});
      EXPECT_EQ(balance.work, balance.elements);
      EXPECT_LE(3.0 * static_cast<double>(*std::ranges::max_element(balance.work)) * ranks,
                4.0 * static_cast<double>(all));
    }
}

/// Work is balanced over both groups; if each were balanced alone, rank 0 would own both matrices.
TEST(Owned, BalancesWorkOverAllGroupsTogether) {
  const Groups groups = {{{{.shape = {64, 64}, .work = 100}, {.shape = {64}, .work = 1}}},
                         {{{.shape = {64, 64}, .work = 100}, {.shape = {64}, .work = 1}}}};
  const Balance balance = balance_of(groups, build(groups, 2), 2);
  EXPECT_EQ(balance.work, (std::vector<std::int64_t>{101, 101}));
}

/// Tensors of the same size with different work: a tall matrix costs more than a wide one with as many elements.
TEST(Owned, BalancesTheGivenWorkWithinTheSlack) {
  const Groups groups = {{{{.shape = {8, 64}, .work = 6},
                           {.shape = {8, 64}, .work = 2},
                           {.shape = {8, 64}, .work = 2},
                           {.shape = {8, 64}, .work = 2}}}};
  EXPECT_EQ(balance_of(groups, build(groups, 2, {.slack = 1}), 2).work, (std::vector<std::int64_t>{6, 6}));
  EXPECT_EQ(balance_of(groups, build(groups, 2, {.slack = 0}), 2).elements, (std::vector<std::int64_t>{1024, 1024}))
      << "without slack elements come first";
}

/// By work alone, the second tensor and those joined to it would have two owners.
TEST(Owned, JoinedTensorsHaveOneOwnerAndAreAdjacent) {
  const Groups groups = {{{{.shape = {64}, .work = 4},
                           {.shape = {8, 64}, .work = 2},
                           {.shape = {4, 64}, .work = 1, .joins_previous = true},
                           {.shape = {4, 64}, .work = 1, .joins_previous = true},
                           {.shape = {16, 64}, .work = 3}}}};
  const std::vector<Layout> layouts = build(groups, 2, {.slack = 1});
  EXPECT_EQ(balance_of(groups, layouts, 2).work, (std::vector<std::int64_t>{4, 7}));
  EXPECT_EQ(layouts[0].offsets, (std::vector<std::int64_t>{1024, 0, 512, 768, 1088}));
}

TEST(Owned, TensorsWithoutWorkBalanceTheElements) {
  const Groups groups = {{{{.shape = {640}, .work = 0},
                           {.shape = {640}, .work = 0},
                           {.shape = {640}, .work = 0},
                           {.shape = {640}, .work = 0}}}};
  EXPECT_EQ(balance_of(groups, build(groups, 2), 2).elements, (std::vector<std::int64_t>{1280, 1280}));
}

TEST(Owned, IsOneRunWithUnevenCounts) {
  const Groups groups = {{{{.shape = {3, 50}, .work = 150}, {.shape = {10}, .work = 10}, {.shape = {65}, .work = 65}}}};
  const Layout layout = build(groups, 3).front();
  EXPECT_EQ(layout.runs, (std::vector<buffer::Run>{{.full = 0, .local = 0, .counts = {192, 128, 64}}}));
  EXPECT_EQ(layout.local_sizes, (std::vector<std::int64_t>{192, 128, 64}));
  EXPECT_EQ(layout.offsets, (std::vector<std::int64_t>{0, 320, 192}));
}

TEST(Owned, ARankMayOwnNothingAndAGroupMayBeEmpty) {
  const Groups groups = {{{{.shape = {4}, .work = 4}}}, {}};
  const std::vector<Layout> layouts = build(groups, 3);
  EXPECT_EQ(layouts[0].local_sizes, (std::vector<std::int64_t>{64, 0, 0}));
  EXPECT_TRUE(layouts[0].ranges(2).empty());
  EXPECT_EQ(layouts[1].full_size, 0);
  EXPECT_EQ(layouts[1].local_sizes, (std::vector<std::int64_t>{0, 0, 0}));
}

TEST(Owned, NegativeWorkOrSlackIsAnError) {
  const Groups groups = {{{{.shape = {4}, .work = -1}}}};
  EXPECT_THROW(build(groups, 2), InputError);
  EXPECT_THROW(build({}, 2, {.slack = -0.5}), InputError);
}

}  // namespace
}  // namespace fsdp::buffer

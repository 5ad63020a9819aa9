// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/buffer/layout_policies.hpp>

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include <support/temporary_folder.hpp>
#include <tessera/fsdp/core/checked.hpp>

namespace fsdp::buffer {
namespace {

using Counts = std::vector<std::int64_t>;
using Groups = std::vector<TensorGroup>;

/// Elements of each tensor of the first group that each rank stores.
std::vector<Counts> counts_of(const Groups& groups, int ranks, const Blocks& policy = {}) {
  const Layout layout =
      build_layouts(policy, std::span<const TensorGroup>(groups), std::vector<int>(groups.size(), ranks)).front();
  std::vector<Counts> counts(groups.front().tensors.size(), Counts(static_cast<std::size_t>(ranks)));
  for (int rank = 0; rank < ranks; ++rank)
    for (const TensorRange& range : layout.ranges(rank))
      counts[static_cast<std::size_t>(range.tensor)][static_cast<std::size_t>(rank)] += range.count;
  return counts;
}

/// Tensors of random shapes; their blocks are a row, a divisor of the elements, the whole tensor, or not stated.
Groups some_groups(std::mt19937& random) {
  const auto up_to = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(0, most)(random); };
  Groups groups(static_cast<std::size_t>(1 + up_to(4)));
  for (TensorGroup& group : groups)
    for (std::int64_t i = up_to(7); i >= 0; --i) {
      const std::int64_t rows = up_to(12) * (1 + up_to(8)), columns = 1 + up_to(99);
      const Shape shape = up_to(9) == 0 ? Shape{} : up_to(3) == 0 ? Shape{rows} : Shape{rows, columns};
      const std::int64_t block = Counts{0, 0, 1 + up_to(9), shape.numel()}[static_cast<std::size_t>(up_to(3))];
      group.tensors.push_back({.shape = shape, .block = block > 0 && shape.numel() % block == 0 ? block : 0});
    }
  return groups;
}

void expect_whole_blocks(const Layout& layout, const std::vector<TensorRange>& ranges) {
  for (const TensorRange& range : ranges) {
    const auto tensor = static_cast<std::size_t>(range.tensor);
    EXPECT_EQ(range.begin % layout.blocks[tensor], 0);
    if (range.begin + range.count < layout.shapes[tensor].numel()) {
      EXPECT_EQ(range.count % layout.blocks[tensor], 0);
    }
  }
}

/// build_layouts checks that each element is on one rank.
TEST(Blocks, AreNotCutAndElementsOfARankAreWithinTheBound) {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round)
    for (const int ranks : {1, 2, 3, 4, 5, 40}) {
      SCOPED_TRACE(message("round ", round, ", ", ranks, " ranks"));
      const Groups groups = some_groups(random);
      const Blocks policy{.elements = round % 3 == 0 ? 0 : 1 + round * 7};
      const int replicas = 1 + round % 4;
      Counts held(static_cast<std::size_t>(ranks)), held_across(static_cast<std::size_t>(ranks * replicas));
      std::int64_t largest = 0;
      std::vector<Layout> layouts =
          build_layouts(policy, std::span<const TensorGroup>(groups), std::vector<int>(groups.size(), ranks));
      cut_across(layouts, std::vector<int>(groups.size(), replicas));
      for (const Layout& layout : layouts) {
        for (std::size_t i = 0; i < layout.shapes.size(); ++i)
          largest = std::max(largest, std::min(layout.blocks[i], layout.shapes[i].numel()));
        for (int rank = 0; rank < ranks; ++rank) {
          held[static_cast<std::size_t>(rank)] += layout.local_size(rank);
          EXPECT_EQ(layout.local_size(rank),
                    round_up(layout.runs.front().counts[static_cast<std::size_t>(rank)], element_alignment));
          expect_whole_blocks(layout, layout.ranges(rank));
          for (int replica = 0; replica < replicas; ++replica) {
            held_across[static_cast<std::size_t>(rank * replicas + replica)] += layout.across_size(rank, replica);
            expect_whole_blocks(layout, layout.ranges_across(rank, replica));
          }
        }
      }
      const std::int64_t all = std::accumulate(held.begin(), held.end(), std::int64_t{0});
      EXPECT_LE(std::ranges::max(held) * ranks, all + (largest + 128) * ranks);
      for (std::size_t i = 0; i < held_across.size(); ++i)
        EXPECT_LE(held_across[i] * replicas, held[i / static_cast<std::size_t>(replicas)] + (largest + 64) * replicas);
    }
}

TEST(Blocks, OfHeadsAreOnOneRank) {
  constexpr std::int64_t head = 4 * 32;
  const auto of_heads = [](std::int64_t heads) {
    return counts_of({{{{.shape = {4 * heads, 32}, .block = head}}}}, 4).front();
  };
  EXPECT_EQ(of_heads(6), (Counts{head, 2 * head, head, 2 * head}));
  EXPECT_EQ(of_heads(2), (Counts{0, head, 0, head}));
}

TEST(Blocks, WithoutADeclarationAreRowsOrConsecutiveElementsOfWhichTheLastAreFewer) {
  const Groups groups{{{{.shape = {5, 40}}}}};
  EXPECT_EQ(counts_of(groups, 2), (std::vector<Counts>{{120, 80}})) << "padded to 256 elements";
  EXPECT_EQ(counts_of(groups, 2, {.elements = 64}), (std::vector<Counts>{{128, 72}}));
  EXPECT_EQ(counts_of(groups, 2, {.elements = 1000}), (std::vector<Counts>{{0, 200}}));
  EXPECT_EQ(Blocks{.elements = 64}.text(), "blocks:64");
  EXPECT_INPUT_ERROR(counts_of(groups, 2, {.elements = -1}), "blocks: a block of -1 elements is requested; give");
}

/// Each group alone would give its two matrices to the same ranks.
TEST(Blocks, AreBalancedOverAllGroups) {
  const TensorGroup group{{{.shape = {64, 64}, .block = 4096}, {.shape = {64, 64}, .block = 4096}}};
  const auto layouts = Blocks{}.build(std::vector{group, group}, 4);
  for (std::size_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(layouts[0].local_sizes[rank] + layouts[1].local_sizes[rank], 4096) << rank;
}

TEST(CutToLevel, CountsBlocksFromTheTensorsFirstElementAndWithoutBlocksAnyElementIsABorder) {
  Layout layout = lay_out(std::vector<Shape>{{8, 16}, {0}});
  EXPECT_EQ(layout.cut_to_level(Counts{0, 7}, layout.whole(), 128), (Counts{0, 68, 128}));
  layout.blocks = {48, 1};
  EXPECT_EQ(layout.cut_to_level(Counts{0, 0, 0}, layout.whole(), 128), (Counts{0, 48, 96, 128}));
  const std::vector<TensorRange> rest{{.tensor = 0, .begin = 16, .count = 112, .local = 0}};
  EXPECT_EQ(layout.cut_to_level(Counts{0, 0}, rest, 112), (Counts{0, 32, 112}));  // element 48
}

/// The second tensor first, in a layout with blocks.
struct Backward {
  static constexpr std::string_view name = "backward";
  std::int64_t border = 0;
  std::vector<Layout> build(std::span<const TensorGroup>, int) const {
    Layout layout;
    layout.shapes = {{4, 32}, {6, 32}};
    layout.offsets = {192, 0};
    layout.full_size = 320;
    layout.blocks = {32, 64};
    cut_at(layout, Counts{0, border, 320});
    return {layout};
  }
};

TEST(CutAcross, OfTensorsInAnyOrderAndOfBlocksThatBordersCut) {
  const TensorGroup group{{{.shape = {4, 32}, .name = "a"}, {.shape = {6, 32}, .name = "b"}}};
  const auto build = [&](std::int64_t border) {
    return build_layouts(Backward{border}, std::span(&group, 1), std::vector{2});
  };
  std::vector<Layout> layouts = build(64);
  EXPECT_EQ(layouts[0].ranges(1), (std::vector<TensorRange>{{1, 64, 128, 0}, {0, 0, 128, 128}}));
  cut_across(layouts, std::vector{4});
  EXPECT_EQ(layouts[0].across_of(1).counts, (Counts{64, 64, 64, 64}));
  EXPECT_NO_THROW(build(224));
  EXPECT_INPUT_ERROR(build(96), "has a border at element 96 of tensor 1 ('b'), inside of a block of 64 elements");
}

/// Borders that its user gives.
struct ByHand {
  static constexpr std::string_view name = "by-hand";
  Counts borders;
  std::vector<Layout> build(std::span<const TensorGroup> groups, int) const {
    Layout layout = lay_out(std::vector{groups.front().tensors.front().shape});
    cut_at(layout, borders);
    return {layout};
  }
};

TEST(CutAt, DividesTheFullBufferAtBordersGivenByHand) {
  const Groups groups{{{{.shape = {10, 30}, .name = "w"}}}};
  const auto build = [&](const Counts& borders) {
    return build_layouts(ByHand{borders}, std::span<const TensorGroup>(groups), std::vector{3}).front();
  };
  const Layout layout = build({0, 30, 30, 320});
  EXPECT_EQ(layout.runs, (std::vector<buffer::Run>{{.full = 0, .local = 0, .counts = {30, 0, 290}}}));
  EXPECT_EQ(layout.local_sizes, (Counts{64, 0, 320}));
  for (const Counts& borders : {Counts{}, {0, 60, 30, 320}, {0, 60, 90, 300}, {1, 60, 90, 320}})
    EXPECT_THROW(build(borders), LogicError) << borders.size();
  EXPECT_INPUT_ERROR(build({0, 60, 320}), "has 2 local sizes");
}

static_assert(LayoutPolicy<Blocks> && keeps_tensors_whole<Blocks> && !keeps_tensors_whole<Rows>);

}  // namespace
}  // namespace fsdp::buffer

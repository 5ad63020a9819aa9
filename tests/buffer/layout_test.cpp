// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/buffer/layout_policies.hpp>

#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include <support/temporary_folder.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::buffer {
namespace {

using Counts = std::vector<std::int64_t>;

const std::vector<Shape> uneven = {{5, 3}, {2, 70}, {1}, {7}, {64, 2}, {3, 3}};

constexpr int up_to_8[] = {1, 2, 3, 4, 5, 6, 7, 8};

/// The layout of one group.
template <class L>
Layout layout_of(const std::vector<Shape>& shapes, int ranks, const L& policy = {}) {
  TensorGroup group;
  for (const Shape& shape : shapes) group.tensors.push_back({.shape = shape, .work = shape.numel()});
  return policy.build(std::span<const TensorGroup>(&group, 1), ranks).front();
}

/// Counts the ranges that contain each element of each tensor.
struct Held {
  std::vector<std::vector<int>> ranges;

  explicit Held(const Layout& layout) {
    for (const Shape& shape : layout.shapes) ranges.emplace_back(static_cast<std::size_t>(shape.numel()));
  }
  void add(const TensorRange& range) {
    for (std::int64_t i = range.begin; i < range.begin + range.count; ++i)
      ++ranges.at(static_cast<std::size_t>(range.tensor)).at(static_cast<std::size_t>(i));
  }
  void expect_once() const {
    for (const auto& tensor : ranges) EXPECT_EQ(tensor, std::vector<int>(tensor.size(), 1));
  }
};

/// Checks that every element of every tensor is in one range of one rank, and that ranges of a rank do not overlap.
template <class L>
void expect_each_element_once(int ranks) {
  SCOPED_TRACE(ranks);
  const Layout layout = layout_of<L>(uneven, ranks);
  Held held(layout);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<int> used(static_cast<std::size_t>(layout.local_size(rank)));
    for (const TensorRange& range : layout.ranges(rank)) {
      EXPECT_GT(range.count, 0);
      held.add(range);
      for (std::int64_t i = 0; i < range.count; ++i) EXPECT_EQ(used.at(static_cast<std::size_t>(range.local + i))++, 0);
    }
  }
  held.expect_once();
}

/// Checks that the parts of a run are consecutive and within both buffers.
template <class L>
void expect_runs_inside(int ranks) {
  const Layout layout = layout_of<L>(uneven, ranks);
  for (const Run& run : layout.runs) {
    ASSERT_EQ(run.counts.size(), static_cast<std::size_t>(ranks));
    EXPECT_LE(run.full + std::accumulate(run.counts.begin(), run.counts.end(), std::int64_t{0}), layout.full_size);
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_LE(run.local + run.counts[static_cast<std::size_t>(rank)], layout.local_size(rank));
      if (rank > 0) {
        EXPECT_EQ(run.begin(rank), run.begin(rank - 1) + run.counts[static_cast<std::size_t>(rank - 1)]);
      }
    }
  }
}

TEST(Layout, RangesCoverEachElementExactlyOnce) {
  const auto expect = []<class L>(L) {
    for (const int ranks : up_to_8) {
      expect_each_element_once<L>(ranks);
      expect_runs_inside<L>(ranks);
    }
  };
  expect(PerParameter{});
  expect(Flat{});
  expect(Rows{});
  expect(Owned{});
  expect(Blocks{});
}

TEST(Layout, TensorsStartAtMultiplesOf64Elements) {
  for (const int ranks : up_to_8) {
    for (const Layout& layout : {PerParameter::of_group(uneven, ranks), Flat::of_group(uneven, ranks)}) {
      EXPECT_EQ(layout.offsets, (Counts{0, 64, 256, 320, 384, 512}));
      EXPECT_EQ(layout.local_size(0) % 64, 0);
      EXPECT_GE(layout.local_size(0) * ranks, layout.full_size);
    }
    for (const buffer::Run& run : PerParameter::of_group(uneven, ranks).runs) EXPECT_EQ(run.local % 64, 0);
  }
}

TEST(PerParameter, SplitsRowsAsTorchChunkDoes) {
  const std::vector<Shape> shapes = {{5, 3}, {7}, {1}, {6, 2}};
  const Layout three = PerParameter::of_group(shapes, 3);
  EXPECT_EQ(three.runs[0].counts, (Counts{6, 6, 3}));  // 5 rows: 2, 2, 1
  EXPECT_EQ(three.runs[1].counts, (Counts{3, 3, 1}));
  EXPECT_EQ(three.runs[2].counts, (Counts{1, 0, 0}));
  EXPECT_EQ(three.runs[3].counts, (Counts{4, 4, 4}));

  const Layout four = PerParameter::of_group(shapes, 4);
  EXPECT_EQ(four.runs[0].counts, (Counts{6, 6, 3, 0}));  // chunks of 2: the last rank has none
  EXPECT_EQ(four.runs[1].counts, (Counts{2, 2, 2, 1}));
  EXPECT_EQ(four.runs[2].counts, (Counts{1, 0, 0, 0}));
  EXPECT_EQ(four.runs[3].counts, (Counts{4, 4, 4, 0}));  // not 2, 2, 1, 1 rows
}

TEST(PerParameter, RangesAreWholeRowsInTheOrderOfTheLocalBuffer) {
  const std::vector<Shape> shapes = {{5, 3}, {1}, {100}};
  const Layout layout = PerParameter::of_group(shapes, 2);
  EXPECT_EQ(layout.local_size(0), 64 + 64 + 64);
  EXPECT_EQ(layout.ranges(0), (std::vector<TensorRange>{{.tensor = 0, .begin = 0, .count = 9, .local = 0},
                                                        {.tensor = 1, .begin = 0, .count = 1, .local = 64},
                                                        {.tensor = 2, .begin = 0, .count = 50, .local = 128}}));
  EXPECT_EQ(layout.ranges(1), (std::vector<TensorRange>{{.tensor = 0, .begin = 9, .count = 6, .local = 0},
                                                        {.tensor = 2, .begin = 50, .count = 50, .local = 128}}));
}

TEST(PerParameter, ARankMayOwnNoElements) {
  const std::vector<Shape> shapes = {{1, 8}};
  const Layout layout = PerParameter::of_group(shapes, 3);
  EXPECT_EQ(layout.ranges(0).size(), 1u);
  EXPECT_TRUE(layout.ranges(1).empty());
  EXPECT_TRUE(layout.ranges(2).empty());
}

TEST(Flat, ShardsOneBufferEquallyEvenWithinTensors) {
  const std::vector<Shape> shapes = {{3, 50}, {10}};
  const Layout layout = Flat::of_group(shapes, 2);
  EXPECT_EQ(layout.full_size, 256);  // padded sizes of 192 and 64
  EXPECT_EQ(layout.local_size(0), 128);
  ASSERT_EQ(layout.runs.size(), 1u);
  EXPECT_EQ(layout.runs[0], (buffer::Run{.full = 0, .local = 0, .counts = {128, 128}}));
  EXPECT_EQ(layout.ranges(0), (std::vector<TensorRange>{{.tensor = 0, .begin = 0, .count = 128, .local = 0}}));
  EXPECT_EQ(layout.ranges(1), (std::vector<TensorRange>{{.tensor = 0, .begin = 128, .count = 22, .local = 0},
                                                        {.tensor = 1, .begin = 0, .count = 10, .local = 64}}));
}

TEST(Flat, PadsToAMultipleOfTheRanksAndMayLeaveTrailingRanksEmpty) {
  const std::vector<Shape> shapes = {{3}};
  const Layout layout = Flat::of_group(shapes, 3);
  EXPECT_EQ(layout.full_size, 192);
  EXPECT_EQ(layout.ranges(0).size(), 1u);
  EXPECT_TRUE(layout.ranges(2).empty());
}

/// Checks that no row is split. Returns the number of elements over all ranks.
std::int64_t expect_whole_rows(const Layout& layout, const std::vector<Shape>& shapes, int ranks) {
  std::int64_t held = 0;
  for (int rank = 0; rank < ranks; ++rank)
    for (const TensorRange& range : layout.ranges(rank)) {
      const Shape& shape = shapes[static_cast<std::size_t>(range.tensor)];
      const std::int64_t row = shape.rank == 0 ? 1 : shape.numel() / shape[0];
      EXPECT_EQ(range.begin % row, 0);
      EXPECT_EQ(range.count % row, 0);
      held += range.count;
    }
  return held;
}

std::int64_t elements_of(const std::vector<Shape>& shapes) {
  return std::accumulate(shapes.begin(), shapes.end(), std::int64_t{0},
                         [](std::int64_t sum, const Shape& shape) { return sum + shape.numel(); });
}

TEST(Rows, SplitsNoRowAndPlacesTensorsAsFlatDoes) {
  const std::vector<Shape> coprime = {{16, 257}, {257, 16}, {1024}, {}};
  for (const int ranks : up_to_8)
    for (const std::vector<Shape>& shapes : {uneven, coprime}) {
      const Layout layout = layout_of<Rows>(shapes, ranks);
      EXPECT_EQ(layout.offsets, Flat::of_group(shapes, ranks).offsets);
      EXPECT_EQ(expect_whole_rows(layout, shapes, ranks), elements_of(shapes));
    }
}

/// A policy that places the tensors at given offsets.
struct Placed {
  static constexpr std::string_view name = "placed";
  Counts offsets;
  std::vector<Layout> build(std::span<const TensorGroup> groups, int) const {
    Layout layout;
    layout.offsets = offsets;
    for (const TensorSpec& tensor : groups.front().tensors) layout.shapes.push_back(tensor.shape);
    layout.full_size = offsets.back() + layout.shapes.back().numel();
    layout.local_sizes = {layout.full_size};
    layout.runs = {{.full = 0, .local = 0, .counts = layout.local_sizes}};
    return {layout};
  }
};

TEST(BuildLayouts, RefuseUnalignedTensorsOfGroupsThatNeedAlignment) {
  const auto build = [](const Counts& offsets, bool aligned) {
    const std::vector<TensorGroup> groups{
        {.tensors = {{.shape = {3, 30}, .name = "k"}, {.shape = {3, 30}, .joins_previous = true, .name = "v"}},
         .aligned = aligned}};
    return build_layouts(Placed{offsets}, std::span<const TensorGroup>(groups), std::vector{1});
  };
  EXPECT_NO_THROW(build({64, 192}, true));
  EXPECT_NO_THROW(build({0, 90}, false));
  EXPECT_INPUT_ERROR(build({0, 90}, true),
                     "layout placed: 'v' starts at element 90; steps in pieces need every tensor");
  EXPECT_INPUT_ERROR(build({0, 256}, true), "'v' starts at element 256");
  EXPECT_INPUT_ERROR(build({8, 136}, true), "'k' starts at element 8");
}

TEST(Layout, CutAcrossReplicasCoversEachElementOnce) {
  for (const int shards : {1, 2, 3})
    for (const int replicas : {1, 2, 4}) {
      for (Layout layout : {PerParameter::of_group(uneven, shards), Flat::of_group(uneven, shards),
                            layout_of<Rows>(uneven, shards), layout_of<Owned>(uneven, shards)}) {
        cut_across(std::span(&layout, 1), std::vector{replicas});
        for (int shard = 0; shard < shards; ++shard)
          EXPECT_EQ(layout.across_of(shard).begin(replicas), layout.local_size(shard));
        Held held(layout);
        for (int shard = 0; shard < shards; ++shard)
          for (int replica = 0; replica < replicas; ++replica)
            for (const TensorRange& range : layout.ranges_across(shard, replica)) {
              EXPECT_LE(range.local + range.count, layout.across_size(shard, replica));
              held.add(range);
            }
        held.expect_once();
      }
    }
}

TEST(Layout, AnEmptyGroupTakesNoMemory) {
  EXPECT_EQ(PerParameter::of_group({}, 3).full_size, 0);
  EXPECT_EQ(Flat::of_group({}, 3).local_size(0), 0);
  EXPECT_TRUE(Flat::of_group({}, 3).ranges(1).empty());
}

TEST(AnyLayout, BuildsTheLayoutOfTheStoredPolicy) {
  const auto expect_same = []<class L>(const L& policy) {
    const Layout found = layout_of<AnyLayout>(uneven, 3, policy), expected = layout_of<L>(uneven, 3, policy);
    EXPECT_EQ(found.offsets, expected.offsets) << L::name;
    EXPECT_EQ(found.runs, expected.runs) << L::name;
    EXPECT_EQ(found.local_sizes, expected.local_sizes) << L::name;
    EXPECT_EQ(AnyLayout(policy).text(), L::name);
  };
  expect_same(PerParameter{});
  expect_same(Flat{});
  expect_same(Rows{});
  expect_same(Owned{});
  expect_same(Blocks{});
}

/// A policy whose layouts encode the number of groups that it was given.
struct Counting {
  static constexpr std::string_view name = "counting";
  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const {
    std::vector<Layout> layouts(groups.size());
    for (Layout& layout : layouts) {
      layout.full_size = 100 * parts + std::ssize(groups);
      layout.local_sizes.resize(static_cast<std::size_t>(parts));
    }
    return layouts;
  }
};

TEST(BuildLayouts, PassThePolicyAllGroupsOfOneRankCountTogether) {
  const std::vector<TensorGroup> groups(4);
  const std::vector<int> parts = {3, 1, 3, 0};
  const auto layouts = build_layouts(Counting{}, std::span<const TensorGroup>(groups), std::span<const int>(parts));
  EXPECT_EQ(layouts[0].full_size, 302);
  EXPECT_EQ(layouts[1].full_size, 101);
  EXPECT_EQ(layouts[2].full_size, 302);
  EXPECT_EQ(layouts[3].full_size, 0) << "cut over nobody";
}

/// A policy that builds PerParameter's layouts and then corrupts the first one by `spoil`.
struct Spoilt {
  static constexpr std::string_view name = "spoilt";
  void (*spoil)(Layout&) = [](Layout&) {};
  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const {
    std::vector<Layout> layouts = PerParameter{}.build(groups, parts);
    spoil(layouts.front());
    return layouts;
  }
};

/// Expects an error that contains `found` for the corrupted layout of a group with the tensors "a" [4, 32] and
/// "b" [6, 32] over 2 ranks.
void expect_refused(std::string_view found, void (*spoil)(Layout&)) {
  const TensorGroup group{{{.shape = {4, 32}, .name = "a"}, {.shape = {6, 32}, .name = "b"}}};
  const int parts = 2;
  const std::string said =
      test::input_error_of([&] { build_layouts(Spoilt{spoil}, std::span(&group, 1), std::span(&parts, 1)); });
  EXPECT_TRUE(said.starts_with("layout spoilt: its layout of group 0 over 2 ranks ")) << said;
  EXPECT_NE(said.find(found), std::string::npos) << said << ", instead of: " << found;
}

TEST(BuildLayouts, RefuseElementsWithNoOwnerOrTwoOwners) {
  expect_refused("gives element 0 of tensor 1 ('b') to no rank; each element of a tensor belongs to one rank",
                 [](Layout& layout) { layout.runs.pop_back(); });
  expect_refused("gives element 0 of tensor 0 ('a') to no rank", [](Layout& layout) { layout.runs.clear(); });
  expect_refused("gives element 127 of tensor 0 ('a') to no rank", [](Layout& layout) { --layout.runs[0].counts[1]; });
  expect_refused("gives element 0 of tensor 0 ('a') to no rank", [](Layout& layout) {
    ++layout.runs[0].full;
    --layout.runs[0].counts[0];
  });
  expect_refused("gives element 0 of the full buffer to two ranks",
                 [](Layout& layout) { layout.runs[1].full = layout.runs[0].full; });
  expect_refused("gives element 127 of the full buffer to two ranks", [](Layout& layout) { --layout.runs[1].full; });
  expect_refused("has tensor 1 ('b') at 64, inside of tensor 0 ('a')", [](Layout& layout) { layout.offsets[1] = 64; });
}

TEST(BuildLayouts, RefuseRunsOutsideTheirBuffers) {
  expect_refused("has two tensors at 0 of rank 0's buffer",
                 [](Layout& layout) { layout.runs[1].local = layout.runs[0].local; });
  expect_refused("has 96 elements of run 1 at 64 of rank 1's buffer, which has 159",
                 [](Layout& layout) { layout.local_sizes[1] = 159; });
  expect_refused("gives rank 0 -1 elements", [](Layout& layout) { layout.local_sizes[0] = -1; });
  expect_refused("gives rank 1 4611686018427387904 elements",
                 [](Layout& layout) { layout.local_sizes[1] = std::int64_t{1} << 62; });
  expect_refused("has a full buffer of 4611686018427387904 elements",
                 [](Layout& layout) { layout.full_size = std::int64_t{1} << 62; });
  expect_refused("has the 192 elements of tensor 1 ('b') at 129 of a full buffer of 320",
                 [](Layout& layout) { layout.offsets[1] = 129; });
  expect_refused("elements of tensor 0 ('a') at -1 of", [](Layout& layout) { layout.offsets[0] = -1; });
  expect_refused("gives rank 1 9223372036854775807 elements of run 1, where the full buffer has 96 left",
                 [](Layout& layout) { layout.runs[1].counts[1] = std::numeric_limits<std::int64_t>::max(); });
  expect_refused("gives rank 0 -64 elements of run 0", [](Layout& layout) { layout.runs[0].counts[0] = -64; });
  expect_refused("has run 0 at 0, and at -64 of the ranks' buffers",
                 [](Layout& layout) { layout.runs[0].local = -64; });
}

TEST(BuildLayouts, RefuseShapesAndCountsThatDoNotMatchTheGroup) {
  expect_refused("has 1 shapes and 2 offsets of 2 tensors", [](Layout& layout) { layout.shapes.pop_back(); });
  expect_refused("gives tensor 0 ('a') another shape", [](Layout& layout) { layout.shapes[0] = {32, 4}; });
  expect_refused("has 1 local sizes", [](Layout& layout) { layout.local_sizes.pop_back(); });
  expect_refused("has 1 counts in run 1", [](Layout& layout) { layout.runs[1].counts.pop_back(); });
}

/// Gaps, runs out of order, buffers that are larger than needed, and tensors without elements are all valid.
TEST(BuildLayouts, AcceptAnyLayoutThatGivesEachElementToOneRank) {
  const TensorGroup group{{{.shape = {4, 32}, .name = "a"}, {.shape = {0, 7}, .name = "none"}, {.shape = {6, 32}}}};
  const int parts = 2;
  const Spoilt policy{[](Layout& layout) {
    std::swap(layout.runs.front(), layout.runs.back());
    layout.local_sizes = {1000, 2000};
    layout.full_size = 5000;
    layout.offsets[1] = 5000;
  }};
  EXPECT_EQ(build_layouts(policy, std::span(&group, 1), std::span(&parts, 1)).front().full_size, 5000);
}

static_assert(LayoutPolicy<PerParameter> && LayoutPolicy<Flat> && LayoutPolicy<Counting> && LayoutPolicy<Spoilt>);
static_assert(!LayoutPolicy<Layout> && !LayoutPolicy<int>);

}  // namespace
}  // namespace fsdp::buffer

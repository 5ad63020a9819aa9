// SPDX-License-Identifier: Apache-2.0
// Ranks and micro-batches with different sizes or numbers of valid targets give the same gradient as one rank with all
// data.
#include <gtest/gtest.h>
#include <range/v3/view/enumerate.hpp>

#include <support/small_llama.hpp>

namespace fsdp::test {
namespace {

/// Window i keeps its targets except the first `i % 8` of its 7: the last windows have few targets or none.
std::vector<Window> windows_with_few_targets(std::size_t count) {
  std::vector<Window> windows = some_windows(count, 7, 37);
  for (const auto& [i, window] : ranges::views::enumerate(windows))
    for (const auto& [t, target] : ranges::views::enumerate(window.targets))
      if (t < i % 8) target = -1 - static_cast<std::int32_t>(t);
  return windows;
}

/// One step in which the place (rank, micro-batch) computes windows [begin, end).
struct Cut {
  std::vector<std::vector<std::pair<std::size_t, std::size_t>>> windows;  // [rank][micro-batch]
  std::int64_t most = 0;
};

RunOptions options_of(const Cut& cut, const std::vector<Window>& windows) {
  RunOptions options =
      uneven_options(static_cast<int>(cut.windows.size()), static_cast<int>(cut.windows.front().size()));
  options.steps = 2;
  options.most_sequences = cut.most;
  options.batch = [cut, windows](const Place& place) {
    const auto [begin, end] =
        cut.windows[static_cast<std::size_t>(place.rank)][static_cast<std::size_t>(place.micro_batch)];
    return std::vector<Window>(windows.begin() + static_cast<std::ptrdiff_t>(begin),
                               windows.begin() + static_cast<std::ptrdiff_t>(end));
  };
  return options;
}

void expect_one_ranks_gradient(const Cut& cut, std::size_t count) {
  const std::vector<Window> windows = windows_with_few_targets(count);
  const RunResults alone = run("fsdp2", options_of({{{{0, count}}}, static_cast<std::int64_t>(count)}, windows));
  for (const auto strategy : strategies) {
    const RunResults found = run(strategy, options_of(cut, windows));
    EXPECT_LE(largest_relative(found.gradients, alone.gradients), 1e-5) << strategy;
    EXPECT_LE(largest_relative(found.losses, alone.losses), 1e-6) << strategy;
    EXPECT_LE(largest_relative(found.norms, alone.norms), 1e-5) << strategy;
    EXPECT_LE(largest_relative(found.weights, alone.weights), 1e-4) << strategy;
  }
}

TEST(Targets, DifferentNumbersOfValidTargetsGiveTheGradientOfOneRank) {
  expect_one_ranks_gradient({{{{0, 2}}, {{2, 4}}, {{4, 6}}}, 2}, 6);
}

TEST(Targets, ARankWithoutValidTargetsGivesTheGradientOfOneRank) {
  expect_one_ranks_gradient({{{{0, 7}}, {{7, 8}}}, 7}, 8);  // window 7 has no target
}

TEST(Targets, UnequalMicroBatchesGiveTheGradientOfOneRank) {
  expect_one_ranks_gradient({{{{0, 1}, {1, 4}}, {{4, 6}, {6, 7}}}, 3}, 7);
}

TEST(Targets, AMicroBatchMayHaveNoValidTargetOnAnyRank) {
  expect_one_ranks_gradient({{{{7, 8}, {0, 7}}, {{15, 16}, {8, 15}}}, 7}, 16);
}

TEST(Targets, ARankMayHaveNoSequence) {
  expect_one_ranks_gradient({{{{0, 3}}, {{3, 3}}, {{3, 4}}}, 3}, 4);
  expect_one_ranks_gradient({{{{0, 2}, {2, 2}}, {{2, 2}, {2, 4}}}, 2}, 4);
}

TEST(Targets, AMicroBatchThatIsLargerThanPlannedIsAnError) {
  const std::vector<Window> windows = windows_with_few_targets(8);
  EXPECT_THROW(run("fsdp2", options_of({{{{0, 8}}}, 2}, windows)), MemoryError);
}

}  // namespace
}  // namespace fsdp::test

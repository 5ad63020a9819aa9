// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/auto_budget.hpp>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

/// 1000 bytes untiled, 600 in the smallest budget; 200 less with --recompute.
const auto peak = [](const tiling::RunTimeTiling& tiling, bool recomputes) -> std::int64_t {
  const std::int64_t tiled = tiling == tiling::RunTimeTiling{} ? 1000 : 600;
  return recomputes ? tiled - 200 : tiled;
};

TEST(LargestBudget, IsTheMemoryWhereTheUntiledStepFits) {
  EXPECT_EQ(largest_budget(1000, false, peak), 1000);
  EXPECT_EQ(largest_budget(800, true, peak), 800);
  EXPECT_GT(largest_budget(700, false, peak), 600);
}

TEST(LargestBudget, SaysWhetherRecomputingWouldDo) {
  EXPECT_INPUT_ERROR(
      largest_budget(500, false, peak),
      "500 bytes (500 B) a rank hold no step of this model, however it is tiled, without --recompute; one "
      "takes 600 (600 B). Add --recompute, with which one fits, or give more --memory");
  EXPECT_INPUT_ERROR(largest_budget(300, false, peak),
                     "however it is tiled, with --recompute too; one takes 400 (400 B); give more --memory");
  EXPECT_INPUT_ERROR(largest_budget(300, true, peak), "however it is tiled; one takes 400 (400 B); give more --memory");
}

}  // namespace
}  // namespace fsdp::train

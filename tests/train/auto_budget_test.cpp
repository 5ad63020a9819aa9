// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/auto_budgets.hpp>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

/// 1000 bytes untiled, 600 in the smallest budget; 200 less with --recompute, and then up to 100 in host memory.
const auto taken = [](const tiling::RunTimeTiling& tiling, const UnitOptions& units) -> TakenBytes {
  const std::int64_t tiled = tiling == tiling::RunTimeTiling{} ? 1000 : 600;
  const auto host = static_cast<std::int64_t>(100 * units.offload_inputs);
  return {.device = (units.recompute ? tiled - 200 : tiled) - host, .host = host};
};
constexpr StackMemory memory_apart = {}, one_memory = {.one = true};
const UnitOptions kept = {}, recomputed = {.recompute = true};

TEST(LargestBudget, IsTheMemoryWhereTheUntiledStepFits) {
  EXPECT_EQ(largest_budget(1000, kept, memory_apart, taken), 1000);
  EXPECT_EQ(largest_budget(800, recomputed, memory_apart, taken), 800);
  EXPECT_GT(largest_budget(700, kept, memory_apart, taken), 600);
}

TEST(LargestBudget, SaysWhetherRecomputingWouldDo) {
  EXPECT_INPUT_ERROR(
      largest_budget(500, kept, memory_apart, taken),
      "500 bytes (500 B) a rank hold no step of this model, however it is tiled, without --recompute; one "
      "takes 600 (600 B). Add --recompute, with which one fits, or give more --memory");
  EXPECT_INPUT_ERROR(largest_budget(299, kept, memory_apart, taken),
                     "however it is tiled, with --recompute too; one takes 400 (400 B); give more --memory");
  EXPECT_INPUT_ERROR(largest_budget(299, recomputed, memory_apart, taken),
                     "however it is tiled; one takes 400 (400 B); give more --memory");
}

TEST(LargestBudget, SaysWhichShareOfInputsInHostMemoryWouldDo) {
  EXPECT_INPUT_ERROR(largest_budget(370, kept, memory_apart, taken),
                     "however it is tiled, with --recompute too; one takes 400 (400 B). Add --recompute --offload "
                     "inputs:0.3, with which one fits and 30 (30 B) are in host memory, or give more --memory");
  EXPECT_INPUT_ERROR(largest_budget(300, recomputed, memory_apart, taken),
                     "Add --offload inputs, with which one fits and 100 (100 B)");
  EXPECT_INPUT_ERROR(largest_budget(300, recomputed, {.offloads_optimizer = true}, taken),
                     "Add --offload optimizer,inputs, with which one fits");
  EXPECT_INPUT_ERROR(largest_budget(350, {.recompute = true, .offload_inputs = 0.25}, memory_apart, taken),
                     "one takes 375 (375 B). Add --offload inputs:0.5, with which one fits and 50 (50 B)");
}

TEST(LargestBudget, OffersNoShareWhereBothMemoriesAreOne) {
  EXPECT_INPUT_ERROR(largest_budget(370, kept, one_memory, taken),
                     "however it is tiled, with --recompute too; one takes 400 (400 B); give more --memory");
  plan::Plan offloaded;
  offloaded.bytes[0] = 300;
  offloaded.offloaded_bytes = 100;
  EXPECT_EQ(taken_by(offloaded).device, 300);
  EXPECT_EQ(taken_by(offloaded, true).device, 400) << "which a budget must not take twice";
}

}  // namespace
}  // namespace fsdp::train

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include <tessera/trainer/report/report.hpp>
#include <tessera/trainer/run/step_memory.hpp>
#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

/// A step needs 1000 bytes untiled and 600 with the smallest budget; --recompute saves 200, of which offloading moves
/// up to 100 more to host memory.
const auto taken = [](const tiling::RunTimeTiling& tiling, const UnitOptions& units) -> TakenBytes {
  const std::int64_t tiled = tiling == tiling::RunTimeTiling{} ? 1000 : 600;
  const auto host = static_cast<std::int64_t>(100 * units.offload_inputs);
  return {.device = (units.recompute ? tiled - 200 : tiled) - host, .host = host};
};
constexpr StackMemory memory_apart = {}, one_memory = {.one = true};
const UnitOptions kept = {}, recomputed = {.recompute = true};

TEST(LargestBudget, IsAllMemoryIfTheUntiledStepFits) {
  EXPECT_EQ(largest_budget(1000, kept, memory_apart, taken), 1000);
  EXPECT_EQ(largest_budget(800, recomputed, memory_apart, taken), 800);
  EXPECT_GT(largest_budget(700, kept, memory_apart, taken), 600);
}

TEST(LargestBudget, ReportsWhetherRecomputationWouldFit) {
  EXPECT_INPUT_ERROR(
      largest_budget(500, kept, memory_apart, taken),
      "500 bytes (500 B) a rank hold no step of this model, however it is tiled, without --recompute; one "
      "takes 600 (600 B). Add --recompute, with which one fits, or give more --memory");
  EXPECT_INPUT_ERROR(largest_budget(299, kept, memory_apart, taken),
                     "however it is tiled, with --recompute too; one takes 400 (400 B); give more --memory");
  EXPECT_INPUT_ERROR(largest_budget(299, recomputed, memory_apart, taken),
                     "however it is tiled; one takes 400 (400 B); give more --memory");
}

TEST(LargestBudget, SuggestsTheShareOfInputsToOffload) {
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

TEST(LargestBudget, SuggestsNoOffloadIfHostAndDeviceShareMemory) {
  EXPECT_INPUT_ERROR(largest_budget(370, kept, one_memory, taken),
                     "however it is tiled, with --recompute too; one takes 400 (400 B); give more --memory");
  plan::Plan offloaded;
  offloaded.bytes[0] = 300;
  offloaded.offloaded_bytes = 100;
  EXPECT_EQ(taken_by(offloaded).device, 300);
  EXPECT_EQ(taken_by(offloaded, true).device, 400) << "which a budget must not take twice";
}

/// A step of 1000 bytes, 200 of them for gathered weights; 50 additional bytes are offloaded.
plan::Plan step() {
  plan::Plan plan;
  plan.offloaded_bytes = 50;
  plan.bytes[static_cast<std::size_t>(device::MemoryKind::weights)] = 800;
  plan.bytes[static_cast<std::size_t>(device::MemoryKind::gathered)] = 200;
  return plan;
}

TEST(LeftForWeights, IsTheMemoryMinusTheRestOfTheStep) {
  EXPECT_EQ(memory_left_for_weights(1000, step(), {}, {}), 200);
  EXPECT_EQ(memory_left_for_weights(1500, step(), {}, {}), 700);
  EXPECT_EQ(memory_left_for_weights(900, step(), {}, {}), 100)
      << "tied weights may need less than the plain step gathers";
  EXPECT_EQ(memory_left_for_weights(0, {}, {}, {}), 1) << "one rank gathers nothing";
  EXPECT_EQ(memory_left_for_weights(1000, step(), {}, {.one = true}), 150) << "what is offloaded is in the same memory";
}

TEST(LeftForWeights, IsAnErrorIfTheStepDoesNotFit) {
  EXPECT_INPUT_ERROR(memory_left_for_weights(799, step(), {}, {}),
                     "budget=auto behind --sharding: 799 bytes (799 B) a rank hold no step of this model, which takes "
                     "800 (800 B) besides gathered weights; give more --memory");
}

TEST(LeftForWeights, SuggestsOnlyFlagsThatAreNotSetYet) {
  const auto advice = [](const UnitOptions& units, StackMemory stack) {
    const std::string text = test::input_error_of([&] { memory_left_for_weights(1, step(), units, stack); });
    return text.substr(std::min(text.find("; give "), text.size()));
  };
  const std::string rest = "; give more --memory, more ranks or shorter sequences";
  EXPECT_EQ(advice({}, {}), rest + ", or keep less with --recompute --offload inputs");
  EXPECT_EQ(advice({}, {.one = true}), rest + ", or keep less with --recompute");
  EXPECT_EQ(advice({.recompute = true}, {.offloads_optimizer = true}),
            rest + ", or keep less with --offload optimizer,inputs");
  EXPECT_EQ(advice({.recompute = true}, {.one = true}), rest);
  EXPECT_EQ(advice({.recompute = true, .offload_inputs = 1}, {}), rest);
}

TEST(ResidencyText, ReportsTheGapToTheLowerBound) {
  using sharding::Hold;
  EXPECT_EQ(report::residency_text({}), "");
  const sharding::Residency best{.holds = {Hold::step, Hold::use, Hold::use, Hold::micro_batch},
                                 .budget_bytes = 50,
                                 .slot_bytes = 40,
                                 .gathered_bytes = 660,
                                 .bound_bytes = 660,
                                 .exhaustive = true};
  const std::string begin =
      "residency: groups held for the step 1, for a micro-batch 1, for a use 2; slots of 40 bytes, budget 50; a step "
      "gathers 660 bytes, ";
  EXPECT_EQ(report::residency_text(best), begin + "the least within the budget");
  sharding::Residency good = best;
  good.bound_bytes = 600;
  good.exhaustive = false;
  EXPECT_EQ(report::residency_text(good), begin + "at most 10.0 % above the least, which is 600 or more");
}

}  // namespace
}  // namespace fsdp::train

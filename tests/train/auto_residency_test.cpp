// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/auto_budgets.hpp>

#include <gtest/gtest.h>

#include <tessera/trainer/report/report.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

/// A step of 1000 bytes, of which gathered weights are 200; 50 more are offloaded.
plan::Plan step() {
  plan::Plan plan;
  plan.offloaded_bytes = 50;
  plan.bytes[static_cast<std::size_t>(device::MemoryKind::weights)] = 800;
  plan.bytes[static_cast<std::size_t>(device::MemoryKind::gathered)] = 200;
  return plan;
}

TEST(LeftForWeights, IsTheMemoryWithoutTheRestOfTheStep) {
  EXPECT_EQ(left_for_weights(1000, step(), {}, {}), 200);
  EXPECT_EQ(left_for_weights(1500, step(), {}, {}), 700);
  EXPECT_EQ(left_for_weights(900, step(), {}, {}), 100) << "tied weights may need less than the plain step gathers";
  EXPECT_EQ(left_for_weights(0, {}, {}, {}), 1) << "one rank gathers nothing";
  EXPECT_EQ(left_for_weights(1000, step(), {}, {.one = true}), 150) << "what is offloaded is in the same memory";
}

TEST(LeftForWeights, IsNothingWhereTheStepDoesNotFit) {
  EXPECT_INPUT_ERROR(left_for_weights(799, step(), {}, {}),
                     "budget=auto behind --sharding: 799 bytes (799 B) a rank hold no step of this model, which takes "
                     "800 (800 B) besides gathered weights; give more --memory");
}

TEST(LeftForWeights, AdvisesFlagsThatTheRunHasNot) {
  const auto advice = [](const UnitOptions& units, StackMemory stack) -> std::string {
    try {
      (void)left_for_weights(1, step(), units, stack);
    } catch (const InputError& error) {
      const std::string text = error.what();
      return text.substr(text.find("; give "));
    }
    return "none";
  };
  const std::string rest = "; give more --memory, more ranks or shorter sequences";
  EXPECT_EQ(advice({}, {}), rest + ", or keep less with --recompute --offload inputs");
  EXPECT_EQ(advice({}, {.one = true}), rest + ", or keep less with --recompute");
  EXPECT_EQ(advice({.recompute = true}, {.offloads_optimizer = true}),
            rest + ", or keep less with --offload optimizer,inputs");
  EXPECT_EQ(advice({.recompute = true}, {.one = true}), rest);
  EXPECT_EQ(advice({.recompute = true, .offload_inputs = 1}, {}), rest);
}

TEST(ResidencyText, SaysHowGoodTheChoiceIs) {
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

// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/auto_residency.hpp>

#include <gtest/gtest.h>

#include <tessera/trainer/report/report.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

/// A step of 1000 bytes, of which gathered weights are 200.
device::BytesByKind step() {
  device::BytesByKind bytes{};
  bytes[static_cast<std::size_t>(device::MemoryKind::weights)] = 800;
  bytes[static_cast<std::size_t>(device::MemoryKind::gathered)] = 200;
  return bytes;
}

TEST(LeftForWeights, IsTheMemoryWithoutTheRestOfTheStep) {
  EXPECT_EQ(left_for_weights(1000, step()), 200);
  EXPECT_EQ(left_for_weights(1500, step()), 700);
  EXPECT_EQ(left_for_weights(900, step()), 100) << "tied weights may need less than the plain step gathers";
  EXPECT_EQ(left_for_weights(0, {}), 1) << "one rank gathers nothing";
}

TEST(LeftForWeights, IsNothingWhereTheStepDoesNotFit) {
  EXPECT_INPUT_ERROR(left_for_weights(799, step()),
                     "budget=auto behind --sharding: 799 bytes (799 B) a rank hold no step of this model, which takes "
                     "800 (800 B) besides gathered weights; give more --memory");
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

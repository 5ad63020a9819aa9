// SPDX-License-Identifier: Apache-2.0
// A policy's text is what its flag says, so that logs can be copied to a command line.
#include <tessera/fsdp/core/policy_text.hpp>

#include <gtest/gtest.h>

#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/tiling/policies.hpp>

#include "support/choices.hpp"

namespace fsdp::cli {
namespace {

TEST(PolicyText, OfAPrecisionIsItsFlag) {
  EXPECT_EQ(policy_text<Bf16Wire<Bf16Mixed>>(), to_text(PrecisionChoice::bf16_wire));
  EXPECT_EQ(policy_text<Fp32>(), to_text(PrecisionChoice::fp32));
  EXPECT_EQ(policy_text<Bf16Mixed>(), to_text(PrecisionChoice::bf16));
}

TEST(PolicyText, OfATilingIsItsFlag) {
  for (const char* flag : {"off", "tiles:4", "tokens:512", "budget:1000000", "budget:auto"})
    EXPECT_EQ(policy_text(parse_tiling(flag)), flag);
  EXPECT_EQ(policy_text(tiling::Untiled{}), "off");
  EXPECT_EQ(policy_text(tiling::StaticTiles<3>{}), "tiles:3");
  EXPECT_EQ(policy_text(tiling::TokensPerTile<64>{}), "tokens:64");
  EXPECT_EQ(policy_text(tiling::StaticBudget<2048>{}), "budget:2048");
  EXPECT_EQ(policy_text(tiling::Budget{.bytes = 5}), "budget:5");
}

}  // namespace
}  // namespace fsdp::cli

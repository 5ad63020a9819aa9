// SPDX-License-Identifier: Apache-2.0
// A policy's text is what its flag says, so that logs can be copied to a command line.
#include <tessera/fsdp/core/policy_text.hpp>

#include <gtest/gtest.h>

#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sharding/strategies.hpp>
#include <tessera/tiling/policies.hpp>

#include "src/program/cli/sharding_of.hpp"
#include "src/program/cli/stack_choice.hpp"

namespace fsdp::cli {
namespace {

/// Reads a flag into a strategy and says what that is called.
template <class Sharding>
std::string read_back(const char* flag) {
  return policy_text(sharding_of<Sharding>(parse_sharding(flag)));
}

TEST(PolicyText, OfAStrategyIsItsFlag) {
  for (const char* flag : {"fsdp2", "fsdp2:deferred", "fsdp2:prefetch=0", "fsdp2:deferred:prefetch=3"})
    EXPECT_EQ(read_back<FullyShard<>>(flag), flag);
  EXPECT_EQ(read_back<FullyShard<ReshardAfterForward::no>>("fsdp2:no-reshard:prefetch=2"),
            "fsdp2:no-reshard:prefetch=2");
  EXPECT_EQ(read_back<FullyShard<ReshardAfterForward::to_group>>("fsdp2:4:deferred"), "fsdp2:4:deferred");
  EXPECT_EQ(read_back<Zero1>("zero1"), "zero1");
  EXPECT_EQ(read_back<Zero2>("zero2"), "zero2");
  for (const char* flag : {"zero3", "zero3:prefetch=2:persist=64:live=100000"}) EXPECT_EQ(read_back<Zero3>(flag), flag);
  for (const char* flag : {"hybrid:2", "hybrid:2:deferred:prefetch=2"})
    EXPECT_EQ(read_back<HybridShard<FullyShard<>>>(flag), flag);
  EXPECT_EQ((read_back<HybridShard<FullyShard<>, OptimizerAcross::sharded>>("hybrid:4:full")), "hybrid:4:full");
  EXPECT_EQ(read_back<Replicated>("replicated"), "replicated");
  for (const char* flag : {"fsdp2:pieces=8", "fsdp2:deferred:prefetch=2:pieces=8"})
    EXPECT_EQ(read_back<Reproducible<FullyShard<>>>(flag), flag);
  EXPECT_EQ(read_back<Reproducible<FullyShard<ReshardAfterForward::to_group>>>("fsdp2:2:pieces=8"), "fsdp2:2:pieces=8");
  EXPECT_EQ(read_back<Reproducible<Zero1>>("zero1:pieces=8"), "zero1:pieces=8");
}

TEST(PolicyText, OfAPolicyAroundAnotherNamesBoth) {
  EXPECT_EQ(policy_text(Offload<FullyShard<>>{{.prefetch_depth = 2}}), "fsdp2:prefetch=2:offload=optimizer");
  EXPECT_EQ(policy_text(WithLayout<FullyShard<>, buffer::Flat>{}), "fsdp2:layout=flat");
  EXPECT_EQ(policy_text(HybridShard<Zero3>{.group = 2, .inner = {.live_bound = 9}}), "hybrid:2:zero3:live=9");
  EXPECT_EQ(policy_text<Bf16Wire<Bf16Mixed>>(), name_of(PrecisionChoice::bf16_wire));
  EXPECT_EQ(policy_text<Fp32>(), name_of(PrecisionChoice::fp32));
  EXPECT_EQ(policy_text<Bf16Mixed>(), name_of(PrecisionChoice::bf16));
}

TEST(PolicyText, OfATilingIsItsFlag) {
  for (const char* flag : {"off", "tiles:4", "tokens:512", "budget:1000000", "budget:auto"})
    EXPECT_EQ(policy_text(training_policy_of(parse_tiling(flag))), flag);
  EXPECT_EQ(policy_text(tiling::Untiled{}), "off");
  EXPECT_EQ(policy_text(tiling::StaticTiles<3>{}), "tiles:3");
  EXPECT_EQ(policy_text(tiling::TokensPerTile<64>{}), "tokens:64");
  EXPECT_EQ(policy_text(tiling::StaticBudget<2048>{}), "budget:2048");
  EXPECT_EQ(policy_text(tiling::Budget{.bytes = 5}), "budget:5");
}

}  // namespace
}  // namespace fsdp::cli

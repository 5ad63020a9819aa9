// SPDX-License-Identifier: Apache-2.0
#include "src/program/cli/replay.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>

#include "support/choices.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::cli {
namespace {

TEST(RecordedStack, IsRebuiltFromTheTextsOfItsPolicies) {
  for (const char* flag :
       {"fsdp2", "fsdp2:pieces=4", "zero3:prefetch=2:persist=64:pieces=8", "fsdp2:no-reshard", "zero1:pieces=2"})
    for (const LayoutChoice layout :
         {LayoutChoice(), {LayoutChoice::owned}, {LayoutChoice::blocks}, {LayoutChoice::blocks, 64}}) {
      ShardingChoice choice = parse_sharding(flag);
      choice.layout = layout;
      const auto strategy = sharding_of<Offload<RunTimeAny>>(choice);
      const StackChoice stack = recorded_stack(policy_text(strategy), "bf16:wire=bf16", "budget:1000000");
      EXPECT_EQ(stack.sharding, choice) << policy_text(strategy);
      EXPECT_EQ(stack.offload, OffloadChoice::optimizer);
      EXPECT_EQ(stack.precision, PrecisionChoice::bf16_wire);
      EXPECT_EQ(stack.tiling, parse_tiling("budget:1000000"));
    }
  const auto grouped = sharding_of<RunTimeAny>(parse_sharding("hybrid:2:zero3"));
  EXPECT_EQ(recorded_stack(policy_text(grouped), "fp32", "off").sharding, parse_sharding("hybrid:2:zero3"));
  EXPECT_INPUT_ERROR(recorded_stack("mine::Strategy", "fp32", "off"), "--sharding ");
}

TEST(RecordedRun, RequiresAFolderOfCheckpoints) {
  const test::TemporaryFolder folder;
  std::vector<std::string> warnings;
  Replay command{.request = {.folder = folder.path(), .step = 3}};
  EXPECT_INPUT_ERROR(recorded_run(command, false, warnings), "holds no checkpoint; give the run's --checkpoint-dir");
  EXPECT_EQ(warnings, std::vector<std::string>{});
  folder.write("broken/step-00000002/trainer.json", "no json");
  EXPECT_INPUT_ERROR(recorded_run({.request = {.folder = folder.path() / "broken", .step = 3}}, false, warnings),
                     "holds no sound checkpoint");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings.front().find("skipping " + (folder.path() / "broken").string()), 0u) << warnings.front();
  folder.write("trainer.json", "{}");
  EXPECT_INPUT_ERROR(recorded_run(command, false, warnings), "is one checkpoint; give the folder that holds it");
  command.request.folder += "/absent";
  EXPECT_INPUT_ERROR(recorded_run(command, false, warnings), "absent: no such folder");
}

}  // namespace
}  // namespace fsdp::cli

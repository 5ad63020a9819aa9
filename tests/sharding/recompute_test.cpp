// SPDX-License-Identifier: Apache-2.0
// Blocks that keep their input alone: the same bits, less memory, the MLP's output never made twice.
#include <string_view>

#include <gtest/gtest.h>

#include <support/small_llama.hpp>

namespace fsdp::test {
namespace {

using Names = std::vector<std::string>;

RunOptions recomputing(int ranks, int micro_batches, bool recompute, const tiling::RunTimeTiling& tiling = {}) {
  RunOptions options = uneven_options(ranks, micro_batches);
  options.units.recompute = recompute;
  options.tiling = tiling;
  options.steps = 3;
  options.evaluated = some_windows(1, 7, 37);
  return options;
}

/// Modules recompute tile by tile, whatever the strategy, and a schedule gathers for the replay, whatever the tiling:
/// other strategies take the last tiling.
TEST(Recompute, ChangesNoBitUnderAnyStrategyAndTiling) {
  const auto last = tiling::RunTimeTiling::tokens(5);
  for (const auto& tiling : sampled({tiling::RunTimeTiling(), tiling::RunTimeTiling::tiles(3), last}))
    for (const std::string_view stack :
         {"fsdp2", "fsdp2/bf16", "fsdp2:no-reshard", "zero1", "zero3", "replicated", "hybrid:2:full", "fsdp2:2"})
      for (const int micro_batches : sampled({1, 3})) {
        if (tiling != last && !stack.starts_with("fsdp2/") && stack != "fsdp2") continue;
        SCOPED_TRACE(message(stack, ", ", micro_batches, " micro-batches"));
        const RunResults kept = run(stack, recomputing(2, micro_batches, false, tiling));
        const RunResults again = run(stack, recomputing(2, micro_batches, true, tiling));
        EXPECT_EQ(again.losses, kept.losses);
        EXPECT_EQ(tensors_that_differ(again.weights, kept.weights), Names{});
        EXPECT_EQ(again.last_evaluation, kept.last_evaluation);
        EXPECT_EQ(again.memory[0].used, again.memory[0].planned);
        EXPECT_LT(again.memory[0].used_activations, kept.memory[0].used_activations);
        EXPECT_EQ(again.records.size(), kept.records.size()) << "the replay uses backward's own gather";
      }
}

TEST(Recompute, OfAModelWithATiedTableChangesNoBit) {
  const auto trained = [](bool recompute) {
    RunOptions options = recomputing(2, 2, recompute);
    options.config.tied = true;
    return run("fsdp2", options);
  };
  const RunResults kept = trained(false), again = trained(true);
  EXPECT_EQ(again.losses, kept.losses);
  EXPECT_EQ(tensors_that_differ(again.weights, kept.weights), Names{});
}

}  // namespace
}  // namespace fsdp::test

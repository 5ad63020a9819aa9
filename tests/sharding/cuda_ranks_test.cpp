// SPDX-License-Identifier: Apache-2.0
// Ranks that share a GPU: every strategy matches the losses and weights of one rank, and two runs are bit-identical.
#include <gtest/gtest.h>

#include <support/small_llama.hpp>
#include <support/stacks/cuda_runners.hpp>

namespace fsdp::test {
namespace {

TEST(CudaRanks, AreBitwiseReproducible) {
  FSDP_NEEDS_CUDA();
  for (const auto stack : {"fsdp2", "zero3", "hybrid:2:full", "fsdp2/bf16"}) {
    SCOPED_TRACE(stack);
    RunOptions options = uneven_options(4, 2);
    options.steps = 3;
    const RunResults first = run_cuda(stack, options);
    const RunResults second = run_cuda(stack, options);
    expect_same_bits(second, first);
    EXPECT_EQ(second.norms, first.norms);
  }
}

TEST(CudaRanks, MatchOneRankWithEveryStrategy) {
  FSDP_NEEDS_CUDA();
  const RunResults alone = run_cuda("fsdp2", uneven_options(1));
  EXPECT_LT(alone.losses.back(), 0.95 * alone.losses.front());  // otherwise nothing was learned
  for (const int ranks : {2, 4})
    for (const auto stack : cuda_strategies) {
      SCOPED_TRACE(message(stack, ", ", ranks, " ranks"));
      expect_follows(run_cuda(stack, uneven_options(ranks, ranks / 2)), alone, {.losses = 1e-5});
    }
}

TEST(CudaRanks, MatchOneRankWithBlockInputsInHostMemory) {
  FSDP_NEEDS_CUDA();
  const RunResults alone = run_cuda("fsdp2", uneven_options(1));
  for (const auto stack : {"fsdp2", "zero3:persist=20", "hybrid:2:full"}) {
    SCOPED_TRACE(stack);
    RunOptions options = uneven_options(4, 2);
    options.units.recompute = true;
    options.units.offload_inputs = 1;
    expect_follows(run_cuda(stack, options), alone, {.losses = 1e-5});
  }
}

/// Corresponds to Parity.Bf16FollowsTheLossCurveOfFp32WithinOnePercent on the host.
TEST(CudaRanks, InBf16MatchFp32WithinOnePercent) {
  FSDP_NEEDS_CUDA();
  const RunResults fp32 = run_cuda("fsdp2", uneven_options(2));
  const RunResults bf16 = run_cuda("fsdp2/bf16", uneven_options(2));
  EXPECT_LE(largest_relative(bf16.losses, fp32.losses), 0.01);
  EXPECT_GT(largest_relative(bf16.losses, fp32.losses), 1e-6);
}

}  // namespace
}  // namespace fsdp::test

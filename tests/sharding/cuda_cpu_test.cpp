// SPDX-License-Identifier: Apache-2.0
// Compares every strategy on a GPU that the ranks share with the CPU. This is a separate file because bench/gpu builds
// the other stack tests without CPU stacks.
#include <gtest/gtest.h>

#include <support/small_llama.hpp>
#include <support/stacks/cuda_runners.hpp>

namespace fsdp::test {
namespace {

TEST(CudaAndCpu, GiveTheSameLossesGradientsAndWeightsWithEveryStrategy) {
  FSDP_NEEDS_CUDA();
  for (const int ranks : {2, 4})
    for (const auto stack : cuda_strategies) {
      SCOPED_TRACE(message(stack, ", ", ranks, " ranks"));
      const RunOptions options = uneven_options(ranks, 2);
      const RunResults expected = run(stack, options);
      const RunResults found = run_cuda(stack, options);
      expect_same_tensors(found.initial, expected.initial);
      EXPECT_LE(largest_relative(found.losses, expected.losses), 1e-5);
      EXPECT_LE(largest_relative(found.norms, expected.norms), 1e-4);
      EXPECT_LE(largest_relative(found.gradients, expected.gradients), 1e-4);
      EXPECT_LE(largest_relative(found.weights, expected.weights), 1e-4);
    }
}

}  // namespace
}  // namespace fsdp::test

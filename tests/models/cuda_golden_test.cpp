// SPDX-License-Identifier: Apache-2.0
// The golden Llamas on a GPU, on one rank and on several ranks that share it.
#include <utility>

#include <gtest/gtest.h>

#include <models/golden_check.hpp>
#include <support/stacks/cuda_runners.hpp>

namespace fsdp::test {
namespace {

TEST(CudaGolden, TwentyStepsMatchPyTorchForAnyStrategyAndTiling) {
  FSDP_NEEDS_CUDA();
  for (const auto& [folder, clip] : golden_folders) {
    const Golden golden(folder);
    for (const auto& [tiling_name, tiling, micro_batches] : golden_tilings())
      for (const auto& [stack, ranks] : {std::pair("fsdp2", 1), {"zero2", 2}, {"replicated", 2}}) {
        SCOPED_TRACE(message(folder, ", ", stack, ", ", ranks, " ranks, ", micro_batches, " micro-batches, tiling ",
                             tiling_name));
        RunOptions options = golden.options(ranks, micro_batches, tiling, clip);
        if (micro_batches == 1) options.logits_of = golden.windows;
        options.begun = 2;
        expect_golden(run_cuda(stack, options), golden, 1e-4, 1e-4);
      }
  }
}

}  // namespace
}  // namespace fsdp::test

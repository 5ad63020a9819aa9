// SPDX-License-Identifier: Apache-2.0
// Training on a GPU compared with training on the CPU.
#include <gtest/gtest.h>

#include <support/small_llama.hpp>
#include <support/stacks/cuda_runners.hpp>

namespace fsdp::test {
namespace {

/// A model with a head size of 64, so that bf16 attention uses tensor cores; every step has different text.
RunOptions fifty_steps() {
  const LlamaConfig config{.vocab_size = 96,
                           .hidden_size = 128,
                           .intermediate_size = 256,
                           .layers = 2,
                           .heads = 2,
                           .kv_heads = 1,
                           .head_dim = 64};
  constexpr std::int64_t length = 64;
  const auto windows = some_windows(100, length, config.vocab_size);
  return {.config = config,
          .sequence_length = length,
          .most_sequences = 2,
          .steps = 50,
          .lr = 1e-3,
          .clip = 1.0,
          .batch =
              [windows](const Place& place) {
                const auto first = static_cast<std::size_t>(2 * place.step);
                return std::vector<Window>{windows[first], windows[first + 1]};
              },
          .collects = false};
}

TEST(CudaTraining, LossMatchesTheCpuFor50Steps) {
  FSDP_NEEDS_CUDA();
  const RunOptions options = fifty_steps();
  const RunResults expected = run("fsdp2", options);
  EXPECT_LT(expected.losses.back(), 0.5 * expected.losses.front());
  EXPECT_LE(largest_relative(run_cuda("fsdp2", options).losses, expected.losses), 1e-4);
  EXPECT_LE(largest_relative(run_cuda("fsdp2/bf16", options).losses, run("fsdp2/bf16", options).losses), 0.02);
}

TEST(CudaTraining, IsBitIdenticalWithGraphs) {
  FSDP_NEEDS_CUDA();
  for (const bool far : {false, true})
    for (const auto stack : {"fsdp2", "fsdp2/bf16"}) {
      RunOptions options = fifty_steps();
      options.units = {.recompute = far, .offload_inputs = far ? 1.0 : 0.0};
      const RunResults queued = run_cuda(stack, options);
      options.graphs = true;
      const RunResults graphs = run_cuda(stack, options);
      EXPECT_EQ(graphs.captured, 1);
      EXPECT_EQ(graphs.launched, options.steps - 1);
      EXPECT_EQ(graphs.losses, queued.losses);
      EXPECT_EQ(graphs.norms, queued.norms);
    }
}

TEST(CudaTraining, IsBitIdenticalInARepeatedRun) {
  FSDP_NEEDS_CUDA();
  const RunOptions options = fifty_steps();
  for (const auto stack : {"fsdp2", "fsdp2/bf16"})
    EXPECT_EQ(run_cuda(stack, options).losses, run_cuda(stack, options).losses);
}

}  // namespace
}  // namespace fsdp::test

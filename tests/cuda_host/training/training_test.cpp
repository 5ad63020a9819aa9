// SPDX-License-Identifier: Apache-2.0
/// Small Llamas trained by the host code of CUDA and NCCL on fakes, compared with the CPU.
#include <gtest/gtest.h>

#include <cuda_host/on_doubles.hpp>
#include <models/golden_check.hpp>
#include <support/small_llama.hpp>
#include <support/stacks/cuda_host_stacks.hpp>

namespace fsdp::testing::cuda_host {
namespace {

using test::RunOptions;
using test::RunResults;

class CudaHost_training : public OnDoubles {
 protected:
  void SetUp() override {
    OnDoubles::SetUp();
    machine().reset(8);
    machine().patience = std::chrono::seconds(60);  // kernels are emulated
  }
  static RunOptions steps_of(int ranks) {
    RunOptions options = test::uneven_options(ranks);
    options.steps = 2;
    options.sharding = {};
    return options;
  }
  static RunResults run(std::string_view stack, RunOptions options) {
    options.sharding = stack;
    return test::cuda_host_stacks(options);
  }
  static void expect_follows(const RunResults& found, const RunResults& expected) {
    EXPECT_LE(test::largest_relative(found.losses, expected.losses), 1e-5);
    EXPECT_LE(test::largest_relative(found.norms, expected.norms), 1e-4);
    EXPECT_LE(test::largest_relative(found.weights, expected.weights), 1e-4);
  }
};

TEST_F(CudaHost_training, MatchesTheCpuWithEveryStrategy) {
  const RunResults expected = test::run("fsdp2", steps_of(1));
  for (const auto stack : {"fsdp2", "zero1", "zero2", "zero3", "hybrid:2", "hybrid:2:full", "replicated"}) {
    SCOPED_TRACE(stack);
    expect_follows(run(stack, steps_of(2)), expected);
  }
}

TEST_F(CudaHost_training, MatchesTheCpuOnAnyNumberOfRanks) {
  const RunResults expected = test::run("fsdp2", steps_of(1));
  for (const int ranks : {1, 3, 4, 8}) {
    SCOPED_TRACE(ranks);
    expect_follows(run("fsdp2", steps_of(ranks)), expected);
  }
}

TEST_F(CudaHost_training, IsBitIdenticalWithGraphs) {
  for (const auto stack : {"fsdp2", "hybrid:2"}) {
    SCOPED_TRACE(stack);
    RunOptions options = steps_of(2);
    options.steps = 3;
    options.collects = false;
    const RunResults queued = run(stack, options);
    options.graphs = true;
    const RunResults graphs = run(stack, options);
    EXPECT_EQ(graphs.captured, 1);
    EXPECT_EQ(graphs.launched, 2);
    EXPECT_EQ(graphs.losses, queued.losses);
    EXPECT_EQ(graphs.norms, queued.norms);
  }
}

/// On a device that runs one collective kernel at a time, whose next one is drawn unless the launch order is implicit.
TEST_F(CudaHost_training, SeveralAxesHangWithoutALaunchOrder) {
  RunOptions options = steps_of(4);
  options.steps = 1;
  options.collects = false;
  for (const auto stack : {"hybrid:2", "fsdp2:2"}) {
    SCOPED_TRACE(stack);
    nccl().keeps_order = false;
    EXPECT_THROW(run(stack, options), comm::CollectiveError);
    expect_problem("their order differs between ranks");
    machine().reset(8);
    nccl().keeps_order = true;
    run(stack, options);
  }
}

TEST_F(CudaHost_training, MatchesTheCpuInBf16) {
  RunOptions options = steps_of(2);
  options.collects = false;
  const RunResults expected = test::run("fsdp2/bf16", options);
  EXPECT_LE(test::largest_relative(test::run_cuda_host_bf16(options).losses, expected.losses), 0.01);
}

/// Uploaded data of a batch must be planned or not uploaded at all; only the second window has targets.
TEST_F(CudaHost_training, LogitsUseThePlannedMemoryWithAndWithoutTargets) {
  RunOptions options = steps_of(2);
  options.steps = 1;
  for (const std::size_t windows : {1, 2}) {
    options.logits_of = test::some_windows(windows, options.sequence_length, options.config.vocab_size);
    options.begun = 2;
    const RunResults found = run("fsdp2", options), expected = test::run("fsdp2", options);
    ASSERT_EQ(found.logits.size(), windows);
    for (std::size_t i = 0; i < windows; ++i) {
      EXPECT_LE(test::relative(found.logits[i], expected.logits[i]), 1e-4);
      EXPECT_LE(test::relative(found.continued_logits[i], expected.continued_logits[i]), 1e-4);
    }
  }
}

TEST_F(CudaHost_training, TwentyStepsMatchPyTorch) {
  const test::GoldenFolder& folder = test::golden_folders[1];
  const test::Golden golden(folder.name);
  RunOptions options = golden.options(2, 1, tiling::RunTimeTiling::tiles(2), folder.clip);
  test::expect_golden(run("fsdp2", options), golden, 1e-4, 1e-4);
  options.graphs = true;
  const RunResults graphs = run("zero2", options);
  EXPECT_EQ(graphs.launched, 19);
  EXPECT_LE(test::largest_relative(graphs.losses, golden.read("adamw.losses")), 1e-4);
}

}  // namespace
}  // namespace fsdp::testing::cuda_host

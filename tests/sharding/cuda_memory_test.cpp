// SPDX-License-Identifier: Apache-2.0
// The GPU memory of a run, as reported by the driver, matches the dry run, including workspaces.
#include <algorithm>
#include <mutex>
#include <numeric>

#include <gtest/gtest.h>

#include <support/small_llama.hpp>
#include <support/stacks/cuda_runners.hpp>

namespace fsdp::test {
namespace {

constexpr double mib = 1024.0 * 1024.0;

/// About 2 GB over two ranks, two steps.
RunOptions two_gigabytes() {
  constexpr std::int64_t length = 512;
  return {.config = {.vocab_size = 8192,
                     .hidden_size = 1024,
                     .intermediate_size = 4096,
                     .layers = 4,
                     .heads = 8,
                     .kv_heads = 4,
                     .head_dim = 128},
          .sequence_length = length,
          .most_sequences = 2,
          .ranks = 2,
          .steps = 2,
          .batch = deal(some_windows(4, length, 8192)),
          .collects = false};
}

TEST(CudaMemory, MatchesThePlanWithinTwoPercentAnd64MiB) {
  FSDP_NEEDS_CUDA();
  RunOptions options = two_gigabytes();
  run_cuda("fsdp2/bf16", options);  // warm-up: kernels and libraries allocate persistent memory on first use
  const std::int64_t before = device::Cuda::free_bytes();
  std::int64_t least = before;
  std::mutex mutex;
  options.before = [&](int, const comm::Record&) {
    const std::int64_t now = device::Cuda::free_bytes();
    const std::lock_guard lock(mutex);
    least = std::min(least, now);
  };
  const RunResults results = run_cuda("fsdp2/bf16", options);

  double planned = 0;
  for (const Memory& memory : results.memory) {
    EXPECT_EQ(memory.used, memory.planned);
    EXPECT_EQ(memory.allocations_at_end, memory.allocations_after_first_step);
    planned += static_cast<double>(std::accumulate(memory.planned.begin(), memory.planned.end(), std::int64_t{0}));
  }
  EXPECT_GT(planned, 1024 * mib);
  EXPECT_NEAR(static_cast<double>(before - least), planned, 0.02 * planned + 64 * mib);
  EXPECT_NEAR(static_cast<double>(before - device::Cuda::free_bytes()), 0.0, 64 * mib);
}

}  // namespace
}  // namespace fsdp::test

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stacks of tests on a GPU that all ranks share: in float, and "fsdp2/bf16" in mixed precision.
#pragma once

#include <string>
#include <string_view>

#include <tessera/fsdp/device/cuda.hpp>

#include <support/stack_runner.hpp>
#include <support/stacks/run_time.hpp>

/// Skips a test with a reason if there is no device.
#define FSDP_NEEDS_CUDA() \
  if (const std::string problem = ::fsdp::device::cuda_problem(); !problem.empty()) GTEST_SKIP() << problem

namespace fsdp::test {

extern const RunTimeStacks cuda_stacks;
RunResults run_cuda_fsdp2_bf16(const RunOptions& options);

/// All strategies; those with groups have 2 ranks per group.
inline constexpr std::string_view cuda_strategies[] = {
    "fsdp2", "fsdp2:no-reshard", "fsdp2:prefetch=2", "fsdp2:2",       "zero1",     "zero2",
    "zero3", "zero3:persist=20", "hybrid:2",         "hybrid:2:full", "replicated"};

inline RunResults run_cuda(std::string_view stack, const RunOptions& options) {
  if (stack == "fsdp2/bf16") return run_cuda_fsdp2_bf16(options);
  RunOptions chosen = options;
  chosen.sharding = stack;
  return cuda_stacks(chosen);
}

}  // namespace fsdp::test

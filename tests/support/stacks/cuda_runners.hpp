// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stacks of the tests on a GPU, which all ranks share: in float, "fsdp2/bf16" in mixed precision too.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include <fsdp/core/error.hpp>
#include <fsdp/device/cuda.hpp>

#include <support/stack_runner.hpp>

/// Ends a test where there is no device, and says why.
#define FSDP_NEEDS_CUDA() \
  if (const std::string problem = ::fsdp::device::cuda_problem(); !problem.empty()) GTEST_SKIP() << problem

namespace fsdp::test {

RunResults run_cuda_fsdp2(const RunOptions& options);
RunResults run_cuda_fsdp2_bf16(const RunOptions& options);
RunResults run_cuda_fsdp2_no_reshard(const RunOptions& options);
RunResults run_cuda_fsdp2_group(const RunOptions& options);
RunResults run_cuda_zero1(const RunOptions& options);
RunResults run_cuda_zero2(const RunOptions& options);
RunResults run_cuda_zero3(const RunOptions& options);
RunResults run_cuda_replicated(const RunOptions& options);
RunResults run_cuda_hybrid(const RunOptions& options);
RunResults run_cuda_hybrid_full(const RunOptions& options);

/// Every strategy, with 2 ranks in a group where a strategy has groups.
inline constexpr std::string_view cuda_strategies[] = {
    "fsdp2", "fsdp2:no-reshard", "fsdp2:prefetch=2", "fsdp2:2",       "zero1",     "zero2",
    "zero3", "zero3:persist=20", "hybrid:2",         "hybrid:2:full", "replicated"};

inline RunResults run_cuda(std::string_view stack, const RunOptions& options) {
  static const std::map<std::string, RunResults (*)(const RunOptions&)> compiled = {
      {"fsdp2", run_cuda_fsdp2},
      {"fsdp2/bf16", run_cuda_fsdp2_bf16},
      {"fsdp2:no-reshard", run_cuda_fsdp2_no_reshard},
      {"fsdp2:K", run_cuda_fsdp2_group},
      {"zero1", run_cuda_zero1},
      {"zero2", run_cuda_zero2},
      {"zero3", run_cuda_zero3},
      {"hybrid:K", run_cuda_hybrid},
      {"hybrid:K:full", run_cuda_hybrid_full},
      {"replicated", run_cuda_replicated},
  };
  const std::string_view strategy = stack.substr(0, stack.find('/'));
  RunOptions chosen = options;
  chosen.sharding = cli::parse_sharding(strategy);
  const auto found = compiled.find(cli::kind_name(chosen.sharding) + std::string(stack.substr(strategy.size())));
  require<InputError>(found != compiled.end(), "no stack of the tests on a GPU is called '", stack, "'");
  return found->second(chosen);
}

}  // namespace fsdp::test

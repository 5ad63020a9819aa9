// SPDX-License-Identifier: Apache-2.0
/// @file
/// Small Llamas over NCCL on the fakes, with every strategy.
#pragma once

#include <support/stacks/run_time.hpp>

namespace fsdp::test {

extern const RunTimeStacks cuda_host_stacks;
RunResults run_cuda_host_bf16(const RunOptions& options);

}  // namespace fsdp::test

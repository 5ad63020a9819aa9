// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/run_time.hpp>

#include <support/stacks/cuda_runners.hpp>
#include <support/stacks/cuda_stack.hpp>

namespace fsdp::test {

const RunTimeStacks cuda_stacks = {
    .any = run_threads<CudaLlama<RunTimeAny>>,
    .full = run_threads<CudaLlama<RunTimeHybridFull>>,
};

RunResults run_cuda_fsdp2_bf16(const RunOptions& options) {
  return run_threads<CudaLlama<FullyShard<>, Bf16Mixed>>(options);
}

}  // namespace fsdp::test

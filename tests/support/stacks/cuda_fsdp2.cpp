// SPDX-License-Identifier: Apache-2.0
#include <support/stacks/cuda_runners.hpp>
#include <support/stacks/cuda_stack.hpp>

namespace fsdp::test {

RunResults run_cuda_fsdp2(const RunOptions& options) { return run_threads<CudaLlama<FullyShard<>>>(options); }
RunResults run_cuda_fsdp2_bf16(const RunOptions& options) {
  return run_threads<CudaLlama<FullyShard<>, Bf16Mixed>>(options);
}
RunResults run_cuda_fsdp2_no_reshard(const RunOptions& options) {
  return run_threads<CudaLlama<FullyShard<ReshardAfterForward::no>>>(options);
}
RunResults run_cuda_fsdp2_group(const RunOptions& options) {
  return run_threads<CudaLlama<FullyShard<ReshardAfterForward::to_group>>>(options);
}

}  // namespace fsdp::test

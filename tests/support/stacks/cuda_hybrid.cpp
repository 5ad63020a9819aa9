// SPDX-License-Identifier: Apache-2.0
#include <support/stacks/cuda_runners.hpp>
#include <support/stacks/cuda_stack.hpp>

namespace fsdp::test {

RunResults run_cuda_hybrid(const RunOptions& options) {
  return run_threads<CudaLlama<HybridShard<FullyShard<>>>>(options);
}
RunResults run_cuda_hybrid_full(const RunOptions& options) {
  return run_threads<CudaLlama<HybridShard<FullyShard<>, OptimizerAcross::sharded>>>(options);
}

}  // namespace fsdp::test

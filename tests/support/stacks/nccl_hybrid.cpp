// SPDX-License-Identifier: Apache-2.0
#include <support/nccl/doubled_nccl.hpp>
#include <support/stacks/runners.hpp>

namespace fsdp::test {

RunResults run_hybrid_nccl(const RunOptions& options) {
  return run_threads<NcclLlama<HybridShard<FullyShard<>>>>(options);
}
RunResults run_hybrid_full_nccl(const RunOptions& options) {
  return run_threads<NcclLlama<HybridShard<FullyShard<>, OptimizerAcross::sharded>>>(options);
}

}  // namespace fsdp::test

// SPDX-License-Identifier: Apache-2.0
#include <support/queued/queued_stack.hpp>
#include <support/stacks/runners.hpp>

namespace fsdp::test {

RunResults run_hybrid_queued(const RunOptions& options) {
  return run_threads<QueuedLlama<HybridShard<FullyShard<>>>>(options);
}
RunResults run_hybrid_full_queued(const RunOptions& options) {
  return run_threads<QueuedLlama<HybridShard<FullyShard<>, OptimizerAcross::sharded>>>(options);
}

}  // namespace fsdp::test

// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/threads.hpp>

#include <support/stack_run.hpp>
#include <support/stacks/runners.hpp>

namespace fsdp::test {

RunResults run_hybrid_full_bf16(const RunOptions& options) {
  return run_threads<Llama<
      Stack<HybridShard<FullyShard<>, OptimizerAcross::sharded>, comm::Threads<>, Bf16Mixed, tiling::RunTimeTiling>>>(
      options);
}
RunResults run_hybrid_offload_bf16(const RunOptions& options) {
  return run_threads<Llama<Stack<Offload<HybridShard<FullyShard<>, OptimizerAcross::sharded>>, comm::Threads<>,
                                 Bf16Mixed, tiling::RunTimeTiling>>>(options);
}

}  // namespace fsdp::test

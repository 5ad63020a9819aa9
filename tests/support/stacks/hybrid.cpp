// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/threads.hpp>

#include <support/stack_run.hpp>
#include <support/stacks/runners.hpp>

namespace fsdp::test {

RunResults run_hybrid(const RunOptions& options) {
  return run_threads<Llama<Stack<HybridShard<FullyShard<>>, comm::Threads<>, Fp32, tiling::RunTimeTiling>>>(options);
}
RunResults run_hybrid_full(const RunOptions& options) {
  return run_threads<
      Llama<Stack<HybridShard<FullyShard<>, OptimizerAcross::sharded>, comm::Threads<>, Fp32, tiling::RunTimeTiling>>>(
      options);
}

}  // namespace fsdp::test

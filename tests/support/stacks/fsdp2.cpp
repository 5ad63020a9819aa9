// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/threads.hpp>

#include <support/stack_run.hpp>
#include <support/stacks/runners.hpp>

namespace fsdp::test {

RunResults run_fsdp2(const RunOptions& options) {
  return run_threads<Llama<Stack<FullyShard<>, comm::Threads<>, Fp32, tiling::RunTimeTiling>>>(options);
}
RunResults run_fsdp2_no_reshard(const RunOptions& options) {
  return run_threads<Llama<Stack<FullyShard<ReshardAfterForward::no>, comm::Threads<>, Fp32, tiling::RunTimeTiling>>>(
      options);
}
RunResults run_fsdp2_group(const RunOptions& options) {
  return run_threads<
      Llama<Stack<FullyShard<ReshardAfterForward::to_group>, comm::Threads<>, Fp32, tiling::RunTimeTiling>>>(options);
}

}  // namespace fsdp::test

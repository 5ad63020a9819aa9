// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/buffer/layout_policies.hpp>

#include <support/stack_run.hpp>
#include <support/stacks/runners.hpp>

namespace fsdp::test {

RunResults run_fsdp2_owned(const RunOptions& options) {
  return run_threads<
      Llama<Stack<WithLayout<FullyShard<>, buffer::Owned>, comm::Threads<>, Fp32, tiling::RunTimeTiling>>>(options);
}
RunResults run_fsdp2_bf16(const RunOptions& options) {
  return run_threads<Llama<Stack<FullyShard<>, comm::Threads<>, Bf16Mixed, tiling::RunTimeTiling>>>(options);
}
RunResults run_fsdp2_bf16_wire(const RunOptions& options) {
  return run_threads<Llama<Stack<FullyShard<>, comm::Threads<>, Bf16Wire<Fp32>, tiling::RunTimeTiling>>>(options);
}
RunResults run_fsdp2_offload(const RunOptions& options) {
  return run_threads<Llama<Stack<Offload<FullyShard<>>, comm::Threads<>, Fp32, tiling::RunTimeTiling>>>(options);
}

}  // namespace fsdp::test

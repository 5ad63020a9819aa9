// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/threads.hpp>

#include <support/stack_run.hpp>
#include <support/stacks/runners.hpp>

namespace fsdp::test {

RunResults run_zero1(const RunOptions& options) {
  return run_threads<Llama<Stack<Zero1, comm::Threads<>, Fp32, tiling::RunTimeTiling>>>(options);
}
RunResults run_zero2(const RunOptions& options) {
  return run_threads<Llama<Stack<Zero2, comm::Threads<>, Fp32, tiling::RunTimeTiling>>>(options);
}
RunResults run_zero3(const RunOptions& options) {
  return run_threads<Llama<Stack<Zero3, comm::Threads<>, Fp32, tiling::RunTimeTiling>>>(options);
}

}  // namespace fsdp::test

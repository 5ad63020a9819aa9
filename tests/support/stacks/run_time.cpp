// SPDX-License-Identifier: Apache-2.0
#include <comm/threads.hpp>
#include <fsdp/sharding/run_time.hpp>

#include <support/stack_run.hpp>
#include <support/stacks/runners.hpp>

namespace fsdp::test {

RunResults run_run_time_sharded(const RunOptions& options) {
  return run_threads<Llama<Stack<RunTimeSharded, comm::Threads<>, Fp32, tiling::RunTime>>>(options);
}
RunResults run_run_time_grouped(const RunOptions& options) {
  return run_threads<Llama<Stack<RunTimeGrouped, comm::Threads<>, Fp32, tiling::RunTime>>>(options);
}
RunResults run_run_time_full(const RunOptions& options) {
  return run_threads<Llama<Stack<RunTimeHybridFull, comm::Threads<>, Fp32, tiling::RunTime>>>(options);
}

}  // namespace fsdp::test

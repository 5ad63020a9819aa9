// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/sequence/ulysses.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>

#include <support/stack_run.hpp>
#include <support/stacks/run_time.hpp>
#include <support/stacks/runners.hpp>

namespace fsdp::test {

namespace {

template <class Sharding>
RunResults run_on_threads(const RunOptions& options) {
  return run_threads<Llama<Stack<Sharding, comm::Threads<>, Fp32, tiling::RunTimeTiling, Ulysses>>>(options);
}

}  // namespace

RunResults run_replicated(const RunOptions& options) { return run_on_threads<Replicated>(options); }

RunResults run_offload(const RunOptions& options) { return run_on_threads<Offload<RunTimeAny>>(options); }

const RunTimeStacks threads_stacks = {.any = run_on_threads<RunTimeAny>, .full = run_on_threads<RunTimeHybridFull>};

}  // namespace fsdp::test

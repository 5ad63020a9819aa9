// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/threads.hpp>
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

const RunTimeStacks threads_stacks = {
    .sharded = run_on_threads<RunTimeSharded>,
    .grouped = run_on_threads<RunTimeGrouped>,
    .full = run_on_threads<RunTimeHybridFull>,
    .replicated = run_replicated,
};

}  // namespace fsdp::test

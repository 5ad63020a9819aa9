// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/run_time.hpp>

#include <support/queued/queued_stack.hpp>
#include <support/stacks/run_time.hpp>

namespace fsdp::test {

const RunTimeStacks queued_stacks = {
    .sharded = run_threads<QueuedLlama<RunTimeSharded>>,
    .grouped = run_threads<QueuedLlama<RunTimeGrouped>>,
    .full = run_threads<QueuedLlama<RunTimeHybridFull>>,
    .replicated = run_threads<QueuedLlama<Replicated>>,
};

}  // namespace fsdp::test

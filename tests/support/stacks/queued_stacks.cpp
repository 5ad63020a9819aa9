// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/run_time.hpp>

#include <support/queued/queued_stack.hpp>
#include <support/stacks/run_time.hpp>

namespace fsdp::test {

const RunTimeStacks queued_stacks = {
    .any = run_threads<QueuedLlama<RunTimeAny>>,
    .full = run_threads<QueuedLlama<RunTimeHybridFull>>,
};

}  // namespace fsdp::test

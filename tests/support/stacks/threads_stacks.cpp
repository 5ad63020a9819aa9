// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sequence/ulysses.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>

#include <support/stacks/run_time.hpp>
#include <support/stacks/runners.hpp>
#include <support/stacks/threads_run.hpp>

namespace fsdp::test {

RunResults run_offload(const RunOptions& options) { return run_watching<Offload<RunTimeAny>>(options); }

const RunTimeStacks threads_stacks = {
    .any = run_watching<RunTimeAny, Ulysses>,
    .full = run_watching<RunTimeHybridFull, Ulysses>,
};

}  // namespace fsdp::test

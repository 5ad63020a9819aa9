// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sequence/ulysses.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>

#include <support/nccl/queued.hpp>
#include <support/queued/modules.hpp>
#include <support/stack_run.hpp>
#include <support/stacks/run_time.hpp>

namespace fsdp::test {

template <class Sharding>
using NcclLlama = Llama<Stack<Sharding, testing::QueuedNccl, Fp32, tiling::RunTimeTiling, Ulysses>>;

const RunTimeStacks nccl_stacks = {
    .any = run_threads<NcclLlama<RunTimeAny>>,
    .full = run_threads<NcclLlama<RunTimeHybridFull>>,
};

}  // namespace fsdp::test

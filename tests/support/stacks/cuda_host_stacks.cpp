// SPDX-License-Identifier: Apache-2.0
#include <support/stacks/cuda_host_stacks.hpp>

#include <tessera/fsdp/sharding/run_time.hpp>

#include <cuda_host/training/nccl_ranks.hpp>
#include <support/stacks/cuda_stack.hpp>

namespace fsdp::test {
namespace {

template <class Sharding, class Precision = Fp32>
using NcclLlama = Llama<Stack<Sharding, testing::cuda_host::NcclRanks, Precision, tiling::RunTimeTiling>>;

}  // namespace

const RunTimeStacks cuda_host_stacks = {
    .any = run_threads<NcclLlama<RunTimeAny>>,
    .full = run_threads<NcclLlama<RunTimeHybridFull>>,
};

RunResults run_cuda_host_bf16(const RunOptions& options) {
  return run_threads<NcclLlama<FullyShard<>, Bf16Mixed>>(options);
}

}  // namespace fsdp::test

// SPDX-License-Identifier: Apache-2.0
#include <support/nccl/doubled_nccl.hpp>
#include <support/stacks/runners.hpp>

namespace fsdp::test {

RunResults run_fsdp2_nccl(const RunOptions& options) { return run_threads<NcclLlama<FullyShard<>>>(options); }
RunResults run_fsdp2_no_reshard_nccl(const RunOptions& options) {
  return run_threads<NcclLlama<FullyShard<ReshardAfterForward::no>>>(options);
}
RunResults run_fsdp2_group_nccl(const RunOptions& options) {
  return run_threads<NcclLlama<FullyShard<ReshardAfterForward::to_group>>>(options);
}

}  // namespace fsdp::test

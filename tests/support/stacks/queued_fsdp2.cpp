// SPDX-License-Identifier: Apache-2.0
#include <support/queued/queued_stack.hpp>
#include <support/stacks/runners.hpp>

namespace fsdp::test {

RunResults run_fsdp2_queued(const RunOptions& options) { return run_threads<QueuedLlama<FullyShard<>>>(options); }
RunResults run_fsdp2_no_reshard_queued(const RunOptions& options) {
  return run_threads<QueuedLlama<FullyShard<ReshardAfterForward::no>>>(options);
}
RunResults run_fsdp2_group_queued(const RunOptions& options) {
  return run_threads<QueuedLlama<FullyShard<ReshardAfterForward::to_group>>>(options);
}

}  // namespace fsdp::test

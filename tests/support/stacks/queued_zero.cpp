// SPDX-License-Identifier: Apache-2.0
#include <fsdp/sharding/run_time.hpp>

#include <support/queued/queued_stack.hpp>
#include <support/stacks/runners.hpp>

namespace fsdp::test {

RunResults run_zero1_queued(const RunOptions& options) { return run_threads<QueuedLlama<Zero1>>(options); }
RunResults run_zero2_queued(const RunOptions& options) { return run_threads<QueuedLlama<Zero2>>(options); }
RunResults run_zero3_queued(const RunOptions& options) { return run_threads<QueuedLlama<Zero3>>(options); }
RunResults run_replicated_queued(const RunOptions& options) { return run_threads<QueuedLlama<Replicated>>(options); }

RunResults run_run_time_sharded_queued(const RunOptions& options) {
  return run_threads<QueuedLlama<RunTimeSharded>>(options);
}

}  // namespace fsdp::test

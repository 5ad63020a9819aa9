// SPDX-License-Identifier: Apache-2.0
#include <fsdp/sharding/run_time.hpp>

#include <support/nccl/doubled_nccl.hpp>
#include <support/stacks/runners.hpp>

namespace fsdp::test {

RunResults run_zero1_nccl(const RunOptions& options) { return run_threads<NcclLlama<Zero1>>(options); }
RunResults run_zero2_nccl(const RunOptions& options) { return run_threads<NcclLlama<Zero2>>(options); }
RunResults run_zero3_nccl(const RunOptions& options) { return run_threads<NcclLlama<Zero3>>(options); }
RunResults run_replicated_nccl(const RunOptions& options) { return run_threads<NcclLlama<Replicated>>(options); }

RunResults run_run_time_sharded_nccl(const RunOptions& options) {
  return run_threads<NcclLlama<RunTimeSharded>>(options);
}

}  // namespace fsdp::test

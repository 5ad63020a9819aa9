// SPDX-License-Identifier: Apache-2.0
#include <support/nccl/doubled_nccl.hpp>
#include <support/stacks/runners.hpp>

namespace fsdp::test {

RunResults run_zero1_nccl(const RunOptions& options) { return run_threads<NcclLlama<Zero1>>(options); }
RunResults run_zero2_nccl(const RunOptions& options) { return run_threads<NcclLlama<Zero2>>(options); }
RunResults run_zero3_nccl(const RunOptions& options) { return run_threads<NcclLlama<Zero3>>(options); }
RunResults run_replicated_nccl(const RunOptions& options) { return run_threads<NcclLlama<Replicated>>(options); }

}  // namespace fsdp::test

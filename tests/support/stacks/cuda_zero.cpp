// SPDX-License-Identifier: Apache-2.0
#include <support/stacks/cuda_runners.hpp>
#include <support/stacks/cuda_stack.hpp>

namespace fsdp::test {

RunResults run_cuda_zero1(const RunOptions& options) { return run_threads<CudaLlama<Zero1>>(options); }
RunResults run_cuda_zero2(const RunOptions& options) { return run_threads<CudaLlama<Zero2>>(options); }
RunResults run_cuda_zero3(const RunOptions& options) { return run_threads<CudaLlama<Zero3>>(options); }
RunResults run_cuda_replicated(const RunOptions& options) { return run_threads<CudaLlama<Replicated>>(options); }

}  // namespace fsdp::test

// SPDX-License-Identifier: Apache-2.0
#include <support/stacks/cuda_stack.hpp>

namespace fsdp::nn {

FSDP_NN_INSTANCES(template, CudaFp32)
FSDP_NN_INSTANCES(template, CudaBf16)
FSDP_NN_INSTANCES(template, PlannedCudaFp32)
FSDP_NN_INSTANCES(template, PlannedCudaBf16)

}  // namespace fsdp::nn

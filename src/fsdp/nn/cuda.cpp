// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/nn/cuda_instances.hpp>

namespace fsdp::nn {

FSDP_NN_INSTANCES(template, CudaFp32)
FSDP_NN_INSTANCES(template, CudaBf16)

}  // namespace fsdp::nn

// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/nn/cuda_instances.hpp>

namespace fsdp::nn {

FSDP_NN_INSTANCES(template, CudaFp32)

}  // namespace fsdp::nn

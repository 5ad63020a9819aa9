// SPDX-License-Identifier: Apache-2.0
// Dry runs of stacks on Cuda. They are part of every build, since they do not require CUDA.
#include <tessera/fsdp/nn/cuda_instances.hpp>

namespace fsdp::nn {

FSDP_NN_INSTANCES(template, CudaMetaFp32)

}  // namespace fsdp::nn

// SPDX-License-Identifier: Apache-2.0
// Modules for dry runs. Those of stacks on Cuda are part of every build, since they do not require CUDA.
#include <tessera/fsdp/nn/cuda_instances.hpp>

namespace fsdp::nn {

FSDP_NN_INSTANCES(template, MetaFp32)
FSDP_NN_INSTANCES(template, MetaBf16)
FSDP_NN_INSTANCES(template, CudaMetaFp32)
FSDP_NN_INSTANCES(template, CudaMetaBf16)

}  // namespace fsdp::nn

// SPDX-License-Identifier: Apache-2.0
// Dry runs of stacks on Cuda, in every build: they need no CUDA.
#include <tessera/fsdp/nn/cuda_instances.hpp>

namespace fsdp::nn {

FSDP_NN_INSTANCES(template, CudaMetaBf16)

}  // namespace fsdp::nn

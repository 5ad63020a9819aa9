// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/nn/instances.hpp>

namespace fsdp::nn {

FSDP_NN_INSTANCES(template, CpuFp32)
FSDP_NN_INSTANCES(template, CpuBf16)

}  // namespace fsdp::nn

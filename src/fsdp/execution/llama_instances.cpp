// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/execution/instances.hpp>

namespace fsdp {

FSDP_OFFLOADED_INPUTS(template)
FSDP_EXECUTION_INSTANCES(template, nn::CpuFp32)
FSDP_EXECUTION_INSTANCES(template, nn::CpuBf16)

}  // namespace fsdp

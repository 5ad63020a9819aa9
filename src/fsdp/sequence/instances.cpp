// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sequence/staged_block.hpp>

namespace fsdp::nn {

FSDP_SEQUENCE_INSTANCES(template, CpuFp32)
FSDP_SEQUENCE_INSTANCES(template, CpuBf16)
FSDP_SEQUENCE_INSTANCES(template, MetaFp32)
FSDP_SEQUENCE_INSTANCES(template, MetaBf16)

}  // namespace fsdp::nn

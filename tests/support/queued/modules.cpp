// SPDX-License-Identifier: Apache-2.0
#include <support/queued/modules.hpp>

namespace fsdp::nn {

FSDP_NN_INSTANCES(template, QueuedFp32)
FSDP_NN_INSTANCES(template, QueuedMetaFp32)

}  // namespace fsdp::nn

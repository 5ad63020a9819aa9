// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/nn/instances.hpp>

namespace fsdp::nn {

FSDP_NN_INSTANCES(template, MetaFp32)

}  // namespace fsdp::nn

// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/sharded.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>

FSDP_META_MODULES(template, fsdp::Fp32)
FSDP_META_MODULES(template, fsdp::Bf16Mixed)

namespace fsdp::detail {

FSDP_PLANNED_BYTES(template, Fp32)
FSDP_PLANNED_BYTES(template, Bf16Mixed)

}  // namespace fsdp::detail

// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/meta_instances.hpp>
#include <tessera/fsdp/optim/sharded.hpp>

namespace fsdp {

FSDP_META_MODULES(template, Fp32)
FSDP_META_MODULES(template, Bf16Mixed)

namespace detail {

FSDP_PLANNED_BYTES(template, Fp32)
FSDP_PLANNED_BYTES(template, Bf16Mixed)

}  // namespace detail

}  // namespace fsdp

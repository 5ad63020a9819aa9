// SPDX-License-Identifier: Apache-2.0
#include "reference.hpp"

namespace fsdp::device::reference {

FSDP_MATRIX(template, float)
FSDP_MATRIX(template, bf16)

}  // namespace fsdp::device::reference

// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/buffer/distributed_buffer.hpp>

namespace fsdp::buffer::detail {

FSDP_SEGMENTS(template, float)
FSDP_SEGMENTS(template, bf16)

}  // namespace fsdp::buffer::detail

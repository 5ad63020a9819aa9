// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/device/compute/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>

namespace fsdp::device {

FSDP_ENQUEUE_MATMULS(template, Cpu::Stream)
FSDP_ENQUEUE_MATMULS(template, Meta::Stream)

}  // namespace fsdp::device

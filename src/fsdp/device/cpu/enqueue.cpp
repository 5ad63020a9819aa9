// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>

namespace fsdp::device {

FSDP_ENQUEUE(template, Cpu::Stream)
FSDP_ENQUEUE(template, Meta::Stream)

}  // namespace fsdp::device

// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>

namespace fsdp::device {

Cpu::Planner::Planner(int threads) : threads_(threads) {
  require<InputError>(threads >= 1, "a stream needs at least one thread, not ", threads);
}

FSDP_ENQUEUE(template, Cpu::Stream)
FSDP_ENQUEUE(template, Meta::Stream)

}  // namespace fsdp::device

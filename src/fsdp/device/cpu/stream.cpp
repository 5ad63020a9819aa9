// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/cpu.hpp>

namespace fsdp::device {

Cpu::Planner::Planner(int threads) : threads_(threads) {
  require<InputError>(threads >= 1, "a stream needs at least one thread, not ", threads);
}

}  // namespace fsdp::device

// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/nn/instances.hpp>

#include "planned_stacks.hpp"

namespace fsdp::stacks {

std::vector<PlannedStack> planned_on_cpu() { return planned_stacks<device::Cpu>(); }

}  // namespace fsdp::stacks

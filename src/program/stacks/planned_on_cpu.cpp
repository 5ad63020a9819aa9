// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/nn/instances.hpp>

#include "planned_stacks.hpp"

namespace fsdp::stacks {

std::vector<PlannedStack> planned_on_cpu() { return planned_stacks<device::Cpu>(); }

}  // namespace fsdp::stacks

namespace fsdp {

using stacks::PlannedMeta;
#define FSDP_STRATEGY(type) FSDP_META_RUNS(device::Cpu, type)
FSDP_STRATEGIES

}  // namespace fsdp

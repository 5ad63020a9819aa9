// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/nn/instances.hpp>

#include "planned_stacks.hpp"

namespace fsdp::stacks {

std::optional<train::EstimatedStep> estimate_on_cpu(const PlannedRun& run) { return estimate_on<device::Cpu>(run); }

}  // namespace fsdp::stacks

// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/device/cuda.hpp>
#include <tessera/fsdp/nn/cuda_instances.hpp>

#include "planned_stacks.hpp"

namespace fsdp::stacks {

std::optional<train::EstimatedStep> estimate_on_cuda(const PlannedRun& run) { return estimate_on<device::Cuda>(run); }

}  // namespace fsdp::stacks

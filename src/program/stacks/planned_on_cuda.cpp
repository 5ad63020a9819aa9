// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/device/cuda.hpp>
#include <tessera/fsdp/nn/cuda_instances.hpp>

#include "planned_stacks.hpp"

namespace fsdp::stacks {

std::vector<PlannedStack> planned_on_cuda() { return planned_stacks<device::Cuda>(); }

}  // namespace fsdp::stacks

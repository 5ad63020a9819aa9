// SPDX-License-Identifier: Apache-2.0
/// @file
/// The contents of optimizer.safetensors.
#pragma once

#include <span>

#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/checkpoint/safetensors.hpp>

namespace fsdp::checkpoint {

/// Plans one tensor, "name.state", for each state of each parameter. The metadata list the frozen parameters.
FilePlan plan_states(const OptimizerStates& states, std::span<const NamedShape> parameters);

}  // namespace fsdp::checkpoint

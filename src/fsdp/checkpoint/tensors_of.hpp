// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tensors of optimizer.safetensors.
#pragma once

#include <span>
#include <vector>

#include <tessera/fsdp/checkpoint/folder.hpp>

namespace fsdp::checkpoint {

/// Returns one tensor, "name.state", for each state of each parameter.
std::vector<NamedShape> tensors_of(const OptimizerStates& states, std::span<const NamedShape> parameters);

}  // namespace fsdp::checkpoint

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which ranks may take the most memory, by what each holds at rest.
#pragma once

#include <vector>

#include <fsdp/module/group_tensors.hpp>

namespace fsdp::plan {

/// Ranks of which one takes the most memory at rest, whatever an element of each kind takes: those that hold no less of
/// one kind than another that holds more of the rest. Of ranks that hold the same, the first.
std::vector<int> most_loaded_ranks(GroupList groups, int ranks);

/// The first rank of each load, where whole tensors are stepped: elements at rest, and role and shape of each tensor
/// that a rank steps.
std::vector<int> one_of_each_load(GroupList groups, int ranks);

/// Whether all ranks hold as much at rest.
bool loads_ranks_alike(GroupList groups, int ranks);

}  // namespace fsdp::plan

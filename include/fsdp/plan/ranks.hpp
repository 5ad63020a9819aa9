// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ranks that may take the most memory, judged by what each holds at rest.
#pragma once

#include <vector>

#include <tessera/fsdp/module/group_tensors.hpp>

namespace fsdp::plan {

/// Returns ranks one of which takes the most memory at rest, whatever the bytes per element of each kind. A rank is
/// left out if another one holds at least as much of every kind; of equal ranks the first stays.
std::vector<int> most_loaded_ranks(GroupList groups, int ranks);

/// Returns the first rank of each distinct load, for optimizers of whole tensors. A load is the elements at rest, and
/// the role and shape of each tensor that the rank steps.
std::vector<int> one_of_each_load(GroupList groups, int ranks);

/// Whether all ranks hold the same number of elements at rest.
bool loads_ranks_alike(GroupList groups, int ranks);

}  // namespace fsdp::plan

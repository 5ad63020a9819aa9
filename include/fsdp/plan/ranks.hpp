// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ranks that may take the most memory, judged by what each holds at rest and by the rows that it computes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <tessera/fsdp/module/group_tensors.hpp>

namespace fsdp::plan {

/// Rows of activations by rank; empty: all ranks have as many.
using RowsOfRanks = std::span<const std::int64_t>;

/// Returns ranks one of which takes the most memory, whatever the bytes per element of each kind and per row. A rank is
/// left out if another one has at least as much of everything; of equal ranks the first stays.
std::vector<int> most_loaded_ranks(GroupList groups, int ranks, RowsOfRanks rows = {});

/// Returns the first rank of each distinct load, for optimizers of whole tensors. A load is the elements at rest, the
/// rows, and the role and shape of each tensor that the rank steps.
std::vector<int> one_of_each_load(GroupList groups, int ranks, RowsOfRanks rows = {});

/// Whether all ranks hold the same number of elements at rest, and have as many rows.
bool loads_ranks_alike(GroupList groups, int ranks, RowsOfRanks rows = {});

}  // namespace fsdp::plan

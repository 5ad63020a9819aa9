// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ranks that may take the most memory, judged by what each holds at rest and by the rows that it computes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <tessera/fsdp/module/group_tensors.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/plan/plan.hpp>

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

namespace detail {

/// Returns the rows of a full micro-batch that each rank computes; none if all have as many.
std::vector<std::int64_t> rows_of_ranks(const Request& request);

/// Returns the ranks that may take the most memory. With an optimizer of whole tensors, the rank with the least at rest
/// may need the most scratch; then one rank of each load is returned.
template <class Module, class Optimizer>
std::vector<int> ranks_to_try(const Module& module, const Request& request, const Optimizer& optimizer) {
  const std::vector<const GroupTensors*> groups = module.group_list();
  if (request.purpose != Purpose::train || optimizer.grain() == optim::Grain::elements || module.whole_at_rest())
    return most_loaded_ranks(groups, request.ranks, rows_of_ranks(request));
  return one_of_each_load(groups, request.ranks, rows_of_ranks(request));
}

}  // namespace detail

}  // namespace fsdp::plan

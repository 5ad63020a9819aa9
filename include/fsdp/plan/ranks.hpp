// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ranks that may need the most memory, selected by their elements at rest and the rows that they compute.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/plan/plan.hpp>

namespace fsdp::plan {

/// Number of rows of activations of each rank; empty if it is the same on all ranks.
using RowsOfRanks = std::span<const std::int64_t>;

/// Returns ranks that include the one with the most memory, whatever the bytes per element of each kind and per row. A
/// rank is omitted if another rank has at least as much of everything; of equal ranks the first is returned.
std::vector<int> most_loaded_ranks(GroupList groups, int ranks, RowsOfRanks rows = {});

/// Returns the first rank of each distinct load, for optimizers of whole tensors. A load consists of the elements at
/// rest, the rows, and the role and shape of each tensor that the rank steps.
std::vector<int> one_of_each_load(GroupList groups, int ranks, RowsOfRanks rows = {});

/// Returns whether all ranks store the same number of elements at rest and have the same number of rows.
bool loads_ranks_alike(GroupList groups, int ranks, RowsOfRanks rows = {});

namespace detail {

/// Returns the number of rows of a full micro-batch that each rank computes; empty if it is the same on all ranks.
std::vector<std::int64_t> rows_of_ranks(const Request& request);

/// Returns the ranks that may need the most memory. With an optimizer of whole tensors, the rank with the least memory
/// at rest may need the most scratch memory; then one rank of each load is returned.
template <class Module, class Optimizer>
std::vector<int> ranks_to_try(const Module& module, const Request& request, const Optimizer& optimizer) {
  const std::vector<const GroupTensors*> groups = module.group_list();
  if (request.purpose != Purpose::train || optimizer.grain() == optim::Grain::elements || module.whole_at_rest())
    return most_loaded_ranks(groups, request.ranks, rows_of_ranks(request));
  return one_of_each_load(groups, request.ranks, rows_of_ranks(request));
}

}  // namespace detail

}  // namespace fsdp::plan

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The search of `--fit`: the fastest ways to train that fit on a cluster, as plans tell.
#pragma once

#include <vector>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/plan/search.hpp>
#include <tessera/trainer/run/estimate.hpp>

#include "commands.hpp"
#include "fit_space.hpp"

namespace fsdp::cli {

/// Estimates the step of a command with other choices. Throws InputError for choices that cannot be.
using EstimateStep = FunctionRef<train::EstimatedStep(const Train&)>;

/// A way that fits, and its step.
struct Way {
  Train train;
  train::EstimatedStep step;
};

/// What a search found.
struct FoundWays {
  std::vector<Way> best = {};      ///< at least one, the fastest first
  plan::SearchResult search = {};  ///< what became of each family of the space
};

/// Returns the three fastest ways of a space that fit. `asked`: the command whose flags made the space. Shows on a
/// terminal how many were estimated. Throws InputError if nothing fits; it says what would be needed.
FoundWays find_ways(const Train& asked, const FitSpace& space, EstimateStep estimate);

}  // namespace fsdp::cli

// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera plan --fit`: looks for the fastest ways to train that fit on a cluster, as plans tell.
#pragma once

#include <string>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/trainer/run/estimate.hpp>

#include "commands.hpp"

namespace fsdp::cli {

/// Estimates the step of a command with other choices. Throws InputError for choices that cannot be.
using EstimateStep = FunctionRef<train::EstimatedStep(const Train&)>;

/// Prints the three fastest ways that fit, with their flags, and why others lose. `missing`: why the program cannot run
/// them; empty: it can. Returns the exit status. Throws InputError if nothing fits; it says what would be needed.
int fit(const Bound<Plan>& command, const plan::Cluster& cluster, const std::string& missing, EstimateStep estimate);

}  // namespace fsdp::cli

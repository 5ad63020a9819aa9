// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera plan --fit`: searches for the fastest training configurations that fit on a cluster, by their plans.
#pragma once

#include <string>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/trainer/run/estimate.hpp>

#include "commands.hpp"

namespace fsdp::cli {

/// Estimates the step of a command with other choices. Throws InputError for an invalid combination of choices.
using EstimateStep = FunctionRef<train::EstimatedStep(const Train&)>;

/// Prints the three fastest configurations that fit, with their flags, and the reason why other strategies are slower
/// or do not fit. `missing`: the reason why this program cannot run them; empty if it can. Returns the exit status.
/// Throws InputError if nothing fits; the error reports the memory that would be needed.
int fit(const Bound<Plan>& command, const plan::Cluster& cluster, const std::string& missing, EstimateStep estimate);

}  // namespace fsdp::cli

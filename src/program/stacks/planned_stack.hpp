// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stacks of `tessera plan`: all strategies with all precisions on the device of every cluster, in every build.
/// They allocate no tensors and need neither CUDA nor MPI.
///
/// To add a strategy or a precision: add its type to the lists in planned_stacks.hpp.
#pragma once

#include <string>
#include <vector>

#include <tessera/trainer/run/estimate.hpp>

#include "../cli/commands.hpp"
#include "../cli/stack_choice.hpp"

namespace fsdp::stacks {

/// A stack on a device without storage. Its strategy type may represent several kinds of --sharding.
struct PlannedStack {
  bool (*takes)(const cli::ShardingChoice&) = nullptr;
  cli::OffloadChoice offload = cli::OffloadChoice::none;
  std::string precision;
  /// See estimate_step.
  train::EstimatedStep (*estimate)(const train::FlagSet&, const cli::Train& train, const plan::Cluster&,
                                   const train::PlannedComm&, bool tells) = nullptr;
};

/// Returns the stacks of a device, "cpu" or "cuda".
/// @{
std::vector<PlannedStack> planned_on_cpu();
std::vector<PlannedStack> planned_on_cuda();
/// @}

/// Estimates the step of `train`, which may differ from the command that the flags are bound to in the choices of
/// --fit. `tells`: prints the choices that it makes for flags that leave them open. Throws InputError if the cluster's
/// device is not that of --comm, and for options that a run would reject.
train::EstimatedStep estimate_step(const train::FlagSet& flags, const cli::Train& train, const plan::Cluster& cluster,
                                   bool tells);

}  // namespace fsdp::stacks

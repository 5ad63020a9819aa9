// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stacks of `tessera plan`: all strategies with all precisions on the device of every cluster, in every build.
/// They allocate no tensors and need neither CUDA nor MPI.
///
/// To add a strategy or a precision: add its type to the lists in planned_stacks.hpp.
#pragma once

#include <optional>

#include <tessera/trainer/run/estimate.hpp>

#include "../cli/commands.hpp"

namespace fsdp::stacks {

/// The parameters of estimate_step, with the communicator.
struct PlannedRun {
  const train::FlagSet& flags;
  const cli::Train& train;
  const plan::Cluster& cluster;
  train::PlannedComm comm;
  bool tells;
};

/// Return the estimate on the stack of a device that the policies select; nothing if there is none.
std::optional<train::EstimatedStep> estimate_on_cpu(const PlannedRun& run);
std::optional<train::EstimatedStep> estimate_on_cuda(const PlannedRun& run);

/// Estimates the step of `train`, which may differ from the command that the flags are bound to in the choices of
/// --fit. `tells`: prints the choices that it makes for flags that leave them open. Throws InputError if the cluster's
/// device is not that of --comm, and for options that a run would reject.
train::EstimatedStep estimate_step(const train::FlagSet& flags, const cli::Train& train, const plan::Cluster& cluster,
                                   bool tells);

}  // namespace fsdp::stacks

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stacks that `tessera plan` knows: all strategies with all precisions on the device of every cluster, in every
/// build. They allocate nothing and need neither CUDA nor MPI.
///
/// To add a strategy or a precision: its type to the lists in planned_stacks.hpp.
#pragma once

#include <string>
#include <vector>

#include <tessera/trainer/run/estimate.hpp>

#include "../cli/commands.hpp"
#include "../cli/strategies.hpp"

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

/// The stacks of a device: "cpu" or "cuda".
/// @{
std::vector<PlannedStack> planned_on_cpu();
std::vector<PlannedStack> planned_on_cuda();
/// @}

/// Estimates the step of `train`, which may differ from the command that the flags are bound to in what --fit tries.
/// `tells`: prints what it chooses where flags leave the choice to it. Throws InputError if the cluster's device is
/// not that of --comm, and for what a run would refuse.
train::EstimatedStep estimate_step(const train::FlagSet& flags, const cli::Train& train, const plan::Cluster& cluster,
                                   bool tells);

}  // namespace fsdp::stacks

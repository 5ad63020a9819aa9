// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera train --fit`: plans, times the best ways, takes the fastest, and trains with its flags.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/trainer/run/estimate.hpp>
#include <tessera/trainer/run/step_timing.hpp>

#include "commands.hpp"
#include "fit_space.hpp"

namespace fsdp::cli {

/// What --fit asks of a program's stacks. Functions that return an int start or join the command's ranks, and return
/// their exit status.
struct FitStacks {
  HasStack has;
  std::function<train::EstimatedStep(const Train&, const plan::Cluster&)> estimate;
  std::function<int(const std::function<int(const comm::Ranks&)>& f)> on_ranks;  ///< calls f on every rank
  std::function<int(const Train&, train::TimedStep&)> time;                      ///< see train::time_step
  std::function<int()> train;                                                    ///< trains as the command then says
};

/// Throws InputError if --fit is given, but no cluster, or another flag with which it makes no sense.
void check_fit(const Train& command);

/// Returns the place of the fastest of the ways that could be timed, the first of equal ones; nothing if none could.
std::optional<std::size_t> fastest(std::span<const train::TimedStep> timed);

/// Finds the best ways on the command's cluster, times a few steps of each and trains with the flags of the fastest, as
/// if the user had given them in place of --fit. Rank 0 prints each way with its times. Returns the exit status. Throws
/// InputError, or MemoryError if no rank has memory for any of them.
int train_fit(Bound<Train>& command, const FitStacks& stacks);

}  // namespace fsdp::cli

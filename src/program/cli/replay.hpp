// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sub-command replay: finds out from a run's checkpoints how it was trained.
#pragma once

#include <string>

#include <tessera/trainer/run/replay_request.hpp>
#include <tessera/trainer/run/resumed.hpp>

#include "commands.hpp"

namespace fsdp::cli {

/// A run to be computed again.
struct RecordedRun {
  train::RunRecord record = {};
  Train train = {};  ///< the command that trained it, as far as results depend on it, with the data and ranks of now
  train::ReplayRequest request = {};
};

/// Reads the record of the run from its folder of checkpoints. `by_launcher`: whether a launcher started the ranks.
/// Throws InputError if it is not there, or the command changes what decides results.
RecordedRun recorded_run(const Replay& command, bool by_launcher);

/// Returns the policies that a run recorded by their texts, as policy_text writes them. Throws InputError for those of
/// other programs.
StackChoice recorded_stack(const std::string& sharding, const std::string& precision, const std::string& tiling);

}  // namespace fsdp::cli

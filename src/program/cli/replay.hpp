// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sub-command replay: reads from a run's checkpoints how it was trained.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/trainer/run/replay_request.hpp>
#include <tessera/trainer/run/resumed.hpp>

#include "commands.hpp"

namespace fsdp::cli {

/// A run that is to be recomputed.
struct RecordedRun {
  train::RunRecord record = {};
  std::optional<checkpoint::TrainerState> after = {};  ///< state of the record's checkpoint, if not before the step
  train::Bound<train::TrainOptions> options = {};  ///< those that results depend on, with the current data and ranks
  train::OptimizerChoice optimizer = {};
  StackChoice stack = {};
  train::ReplayRequest request = {};
  std::vector<std::string> warnings = {};  ///< warnings for one rank to print
};

/// Reads the record of the run from its folder of checkpoints. `by_launcher`: whether a launcher started the ranks.
/// Adds a warning to `warnings` for each invalid checkpoint; every rank reads the folder, and one rank prints them.
/// Throws InputError if there is no record, or if the command changes an option that results depend on.
RecordedRun recorded_run(const Replay& command, bool by_launcher, std::vector<std::string>& warnings);

/// Returns the policies that a run recorded as texts of policy_text. Throws InputError for policies of other programs.
StackChoice recorded_stack(const std::string& sharding, const std::string& precision, const std::string& tiling);

}  // namespace fsdp::cli

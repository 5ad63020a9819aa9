// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sub-command replay: finds out from a run's checkpoints how it was trained.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/trainer/run/replay_request.hpp>
#include <tessera/trainer/run/resumed.hpp>

#include "commands.hpp"

namespace fsdp::cli {

/// A run to be computed again.
struct RecordedRun {
  train::RunRecord record = {};
  std::optional<checkpoint::TrainerState> after =
      {};  ///< of the checkpoint that has the record, if it is behind the step
  /// What trained it, as far as results depend on it, with the data and ranks of now.
  /// @{
  train::Bound<train::TrainOptions> options = {};
  train::OptimizerChoice optimizer = {};
  StackChoice stack = {};
  /// @}
  train::ReplayRequest request = {};
  std::vector<std::string> warnings = {};  ///< for one rank to print
};

/// Reads the record of the run from its folder of checkpoints. `by_launcher`: whether a launcher started the ranks.
/// Adds a sentence to `warnings` for each checkpoint that is not sound; each rank reads the folder, and one prints
/// them. Throws InputError if it is not there, or the command changes what decides results.
RecordedRun recorded_run(const Replay& command, bool by_launcher, std::vector<std::string>& warnings);

/// Returns the policies that a run recorded by their texts, as policy_text writes them. Throws InputError for those of
/// other programs.
StackChoice recorded_stack(const std::string& sharding, const std::string& precision, const std::string& tiling);

}  // namespace fsdp::cli

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The checkpoints of one run: initializes or loads its weights, and saves them.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/precision/loss_scale.hpp>
#include <tessera/trainer/data/sampler.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/checkpoint_dir.hpp>
#include <tessera/trainer/run/resumed.hpp>
#include <tessera/trainer/run/run_weights.hpp>

namespace fsdp::train {

/// The progress of a run that is saved besides weights and optimizer state.
struct Progress {
  data::Position position = {};  ///< in the data, of the next step
  std::int64_t tokens = 0;       ///< seen in all steps
  std::optional<DynamicLossScale::State> loss_scale = {};
  std::optional<checkpoint::BestLoss> best = {};  ///< with --patience
};

/// Where the weights came from.
struct Loaded {
  std::vector<std::string> lines = {};   ///< messages for the user
  std::optional<Progress> resumed = {};  ///< of the resumed run; empty for a new run
};

/// Loads and saves checkpoints. All but the const functions are collective and throw an error of one rank on all.
class RunCheckpoints {
 public:
  /// `dir`: this run's claim to --checkpoint-dir. `names_folder`: whether --model is a folder. `run`: the options to
  /// store; `windows`: number of training windows. References must outlive it.
  RunCheckpoints(const comm::Ranks& ranks, const TrainOptions& options, CheckpointDir dir, RunWeights weights,
                 bool names_folder, RunRecord run, std::int64_t windows);
  ~RunCheckpoints();

  /// Throws InputError unless all ranks can write into --checkpoint-dir and its disk has room for a checkpoint.
  void require_folder();

  /// Loads weights and optimizer state from --resume, or else the initial weights: those of --model's folder, or random
  /// ones. Uses the deadline for disks.
  Loaded load();

  /// Returns whether the last step is saved.
  bool saved() const { return saved_step_ == weights_.steps(); }
  /// The folder of the last checkpoint; empty before the first.
  const std::string& path() const { return path_; }

  /// Checks that weights and optimizer state are finite, then saves the run if there is a --checkpoint-dir. Throws
  /// DivergedError if they are not, also without --checkpoint-dir.
  void save(const Progress& progress);

 private:
  bool leads() const { return ranks_.rank() == 0; }
  checkpoint::Warn warn() const;
  std::filesystem::path path_of(std::int64_t step) const;
  std::array<std::filesystem::path, 2> spared(const checkpoint::TrainerState& state) const;
  checkpoint::TrainerState state_after(const Progress& progress) const;
  std::optional<checkpoint::Checkpoint> open_agreed();
  Loaded resume();
  std::vector<std::string> start();
  void read_side_files();
  std::string restore_agreed(const checkpoint::Checkpoint& from);

  comm::Ranks ranks_;
  const TrainOptions& options_;
  CheckpointDir dir_;
  RunWeights weights_;
  bool names_folder_;
  RunRecord run_;
  std::int64_t windows_;
  std::map<std::string, std::string> damaged_;  ///< by folder: the error of a damaged checkpoint
  std::optional<std::filesystem::path> resumed_from_;
  checkpoint::SideFiles side_files_;  ///< on rank 0
  std::string path_;
  std::int64_t saved_step_ = -1;
};

}  // namespace fsdp::train

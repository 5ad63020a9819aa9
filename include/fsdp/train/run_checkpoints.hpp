// SPDX-License-Identifier: Apache-2.0
/// @file
/// The checkpoints of one run: where its weights come from, and where they are saved.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <comm/ranks.hpp>
#include <fsdp/checkpoint/directory_lock.hpp>
#include <fsdp/checkpoint/folder.hpp>
#include <fsdp/data/sampler.hpp>
#include <fsdp/precision/loss_scale.hpp>
#include <fsdp/train/options.hpp>
#include <fsdp/train/resumed.hpp>
#include <fsdp/train/run_weights.hpp>

namespace fsdp::train {

/// What a run has done, beside its weights and optimizer state.
struct Progress {
  data::Position position = {};  ///< where the data go on
  std::int64_t tokens = 0;       ///< seen in all steps
  std::optional<DynamicLossScale::State> loss_scale = {};
  std::optional<checkpoint::BestLoss> best = {};  ///< with --patience
};

/// Weights, and how they were come by.
struct Loaded {
  std::vector<std::string> lines = {};   ///< what a person should know
  std::optional<Progress> resumed = {};  ///< nothing where the run begins
};

/// Collective: each call is made by all ranks, and an error of one is thrown on all.
class RunCheckpoints {
 public:
  /// `names_folder`: whether --model is a folder. `run`: what the run was told; `windows`: those it trains on.
  /// References must outlive it.
  RunCheckpoints(const comm::Ranks& ranks, const TrainOptions& options, RunWeights weights, bool names_folder,
                 RunRecord run, std::int64_t windows);
  ~RunCheckpoints();

  /// Locks --checkpoint-dir until the end of this object. Throws InputError where it is another run's or has no room.
  void lock();

  /// Weights and optimizer state from --resume, or a run's first weights. Ranks wait for one whose disk is slow.
  Loaded load();

  /// Whether the step that was made last is saved.
  bool saved() const { return saved_step_ == weights_.steps(); }
  /// The folder of the last one; empty before it.
  const std::string& path() const { return path_; }

  /// Saves the run as it is now, where there is a --checkpoint-dir. Throws DivergedError where a weight or an optimizer
  /// state is not finite, with a --checkpoint-dir or without.
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
  RunWeights weights_;
  bool names_folder_;
  RunRecord run_;
  std::int64_t windows_;
  std::optional<checkpoint::DirectoryLock> lock_;  ///< rank 0's
  std::map<std::string, std::string> damaged_;     ///< why, by folder
  std::optional<std::filesystem::path> resumed_from_;
  checkpoint::SideFiles side_files_;  ///< rank 0's
  std::string path_;
  std::int64_t saved_step_ = -1;
};

}  // namespace fsdp::train

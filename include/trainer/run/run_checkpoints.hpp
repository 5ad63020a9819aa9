// SPDX-License-Identifier: Apache-2.0
/// @file
/// The checkpoints of one run: initializes or loads its weights, and saves them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/model_files/model_files.hpp>
#include <tessera/fsdp/sharding/schedule_of.hpp>
#include <tessera/fsdp/training/program.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/engine.hpp>
#include <tessera/trainer/run/output_files.hpp>
#include <tessera/trainer/run/resumed.hpp>

namespace fsdp::train {

/// The source of the loaded weights.
struct Loaded {
  std::vector<std::string> lines = {};  ///< messages for the user
  /// State from which a resumed run continues; empty for a new run.
  std::optional<checkpoint::TrainerState> resumed = {};
};

/// Returns the number of threads per rank of the run that --resume specifies, if its record contains this number and
/// pieces; else 0. Collective; a checkpoint that cannot be read counts as one without a record.
std::int64_t resumed_threads(const comm::Ranks& ranks, const TrainOptions& options,
                             const checkpoint::ReadListing& read);

/// If --threads is not given and the strategy has pieces, sets the resumed run's number of threads in the returned
/// options and in the calling thread's OpenMP team: the last bits of results depend on it. Collective.
template <class Model>
TrainOptions with_resumed_threads(const comm::Ranks& ranks, TrainOptions options,
                                  const typename Model::Stack::Sharding& sharding) {
  if (sharding::facts_of(sharding).pieces == 0 || !options.resume || options.launch.threads > 0) return options;
  const checkpoint::ReadModelListing read = checkpoint::read_listing_with<Model>({});
  options.launch.threads = resumed_threads(ranks, options, read);
  if (options.launch.threads > 0) use_threads(static_cast<int>(options.launch.threads));
  return options;
}

/// Loads and saves checkpoints. Functions that are not const are collective, and all ranks throw one rank's error.
class RunCheckpoints {
 public:
  /// `dir`: this run's use of --checkpoint-dir. References must outlive this object.
  RunCheckpoints(Engine& engine, const TrainOptions& options, CheckpointDir dir);

  /// Throws InputError unless all ranks can write into --checkpoint-dir and its disk has room for a checkpoint.
  void require_folder();

  /// Loads the engine's weights and optimizer state from --resume, or else the initial weights: those of --model's
  /// folder, or random ones. Uses the deadline for disks.
  Loaded load();

  bool saved(std::int64_t step) const { return saved_step_ == step; }  ///< whether this step was saved
  const std::string& path() const { return path_; }  ///< folder of the last checkpoint; empty before the first

  /// Throws DivergedError unless weights and optimizer state are finite, then saves the run if --checkpoint-dir is
  /// given. `state`: the part of the state that the training run provides.
  void save(checkpoint::TrainerState state);

 private:
  bool leads() const { return ranks_.rank() == 0; }
  checkpoint::Warn warn() const;
  Loaded resume();
  std::vector<std::string> start();
  std::optional<checkpoint::Checkpoint> open_agreed();
  bool restored(const checkpoint::Checkpoint& from);
  void remove_older(const checkpoint::TrainerState& state) const;
  void read_side_files();

  Engine& engine_;
  comm::Ranks ranks_;
  const TrainOptions& options_;
  CheckpointDir dir_;
  const RunModel& model_;
  bool names_folder_;
  RunRecord run_;
  std::map<std::string, std::string> damaged_;  ///< by folder: the error message of a damaged checkpoint
  std::optional<std::filesystem::path> resumed_from_;
  checkpoint::SideFiles side_files_;  ///< set only on rank 0
  std::string path_;
  std::int64_t saved_step_ = -1;
};

}  // namespace fsdp::train

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Recomputes one step of a run from its checkpoints and its record, writes its digests and tensors, and compares them
/// with the run's results.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/execution/step_digest.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/report/digest_diff.hpp>
#include <tessera/trainer/report/digest_file.hpp>
#include <tessera/trainer/report/step_tensors.hpp>
#include <tessera/trainer/run/engine.hpp>
#include <tessera/trainer/run/replay_request.hpp>
#include <tessera/trainer/run/run_log.hpp>
#include <tessera/trainer/run/training_run.hpp>

namespace fsdp::train {

/// A step's metrics.
struct LossAndNorm {
  double loss = 0, norm = 0;
  std::map<std::string, double> apart = {};  ///< norms of the parameter groups that are clipped separately
};

/// The recomputed step.
struct ReplayedStep {
  report::DigestStart start = {};
  std::vector<StepDigest> digests = {};
  std::string from = {};  ///< the checkpoint before the step; empty if computed from the run's beginning
  LossAndNorm found = {};
  bool stopped = false;  ///< whether the step diverged, so that no weight changed
};

/// Writes the digest files of a request, reports the step to the user, and compares it with --against. Rank 0
/// constructs one before the step is computed.
class ReplayReport {
 public:
  /// Reads the data to compare with. Throws InputError if they do not contain the step. The request must outlive this
  /// object.
  explicit ReplayReport(const ReplayRequest& request);

  /// Opens the files to write. `tensors`: digests are also written to its folder; may be null. Throws InputError if a
  /// file cannot be opened, or contains the digests of other runs.
  void open(const report::DigestStart& start, const report::StepTensors* tensors);
  /// Writes the digests and prints the result. Returns the exit status: 0, or 1 if the run computed something else.
  [[nodiscard]] int tell(const ReplayedStep& step);

 private:
  report::DigestDiff compared(const ReplayedStep& step) const;

  const ReplayRequest& request_;
  std::int64_t tensor_bytes_ = 0;
  report::DigestWriter digests_, beside_tensors_;
  std::optional<report::DigestSource> theirs_;  ///< data of --against for the step alone
  std::optional<LossAndNorm> metrics_;
};

/// Recomputes a step of a recorded run.
class StepReplay {
 public:
  /// The references must outlive this object. `options`: those of the run, with its data and its threads, and without
  /// saving or validation. `after`: the state of the later checkpoint that contains `recorded`, if it is from a
  /// checkpoint. Throws InputError unless the engine, which must be one for replays, computes bit-identical results to
  /// the run's.
  StepReplay(Engine& engine, const ReplayRequest& request, const TrainOptions& options, const RunWatch& watch,
             const RunRecord& recorded, const std::optional<checkpoint::TrainerState>& after);
  ~StepReplay();

  /// Returns the exit status: 0; 1 if the run computed something else; or 128 + the signal that ended the replay.
  [[nodiscard]] int run();

 private:
  bool leads() const { return ranks_.rank() == 0; }
  void restore();
  std::string restored(const std::string& path);
  void open();
  void compute();
  int tell();

  Engine& engine_;
  comm::Ranks ranks_;
  const ReplayRequest& request_;
  const TrainOptions& options_;
  const RunRecord& recorded_;
  const std::optional<checkpoint::TrainerState>& after_;
  TrainingRun run_;  ///< its log is never begun, so that it stays silent
  std::optional<report::StepTensors> tensors_;
  std::optional<ReplayReport> report_;  ///< set only on rank 0
  ReplayedStep step_;
};

}  // namespace fsdp::train

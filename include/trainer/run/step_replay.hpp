// SPDX-License-Identifier: Apache-2.0
/// @file
/// Recomputes one step of a run from its checkpoints and its record, for the digests and tensors of that step.
///
/// The run stays unchanged: its checkpoints are only read. With pieces, the step is bit-identical on any number of
/// ranks; without pieces, the replay uses the ranks and the strategy of the run.
#pragma once

#include <optional>
#include <string>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/report/step_tensors.hpp>
#include <tessera/trainer/run/engine.hpp>
#include <tessera/trainer/run/replay_report.hpp>
#include <tessera/trainer/run/replay_request.hpp>
#include <tessera/trainer/run/run_watch.hpp>
#include <tessera/trainer/run/training_run.hpp>

namespace fsdp::train {

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

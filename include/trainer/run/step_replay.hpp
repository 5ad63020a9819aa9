// SPDX-License-Identifier: Apache-2.0
/// @file
/// Computes one step of a run again, from its checkpoints and its record: digests, and tensors, of that step.
///
/// The run stays unchanged: its checkpoints are read, and none is written. With pieces the step has the same bits on
/// any number of ranks; without, it takes the ranks and the strategy of the run.
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

/// Computes a step of a recorded run again.
class StepReplay {
 public:
  /// The references must outlive it. `options`: those of the run, with its data and its threads, with which nothing
  /// is saved or validated. `after`: the state of the later checkpoint that has `recorded`, if it is from
  /// one. Throws InputError unless the engine, which replays, computes the run's bits.
  StepReplay(Engine& engine, const ReplayRequest& request, const TrainOptions& options, const RunWatch& watch,
             const RunRecord& recorded, const std::optional<checkpoint::TrainerState>& after);
  ~StepReplay();

  /// Returns the exit status: 0, 1 if the run computed something else, or 128 + a signal that ended the replay.
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
  std::optional<ReplayReport> report_;  ///< on rank 0
  ReplayedStep step_;
};

}  // namespace fsdp::train

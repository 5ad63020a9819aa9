// SPDX-License-Identifier: Apache-2.0
/// @file
/// The training loop of one rank: steps, console, metrics, held-out losses, samples, checkpoints, signals.
///
/// The loop is the same on every rank; only rank 0 prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/launch/signals.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/generate/samples.hpp>
#include <tessera/trainer/run/checkpoint_dir.hpp>
#include <tessera/trainer/run/engine.hpp>
#include <tessera/trainer/run/queued_steps.hpp>
#include <tessera/trainer/run/run_checkpoints.hpp>
#include <tessera/trainer/run/run_log.hpp>
#include <tessera/trainer/run/validation.hpp>

namespace fsdp::train {

/// Trains with an engine. `run` is all of `tessera train` except its flags. A step makes only a few calls of the
/// engine.
class TrainingRun {
 public:
  /// The references must outlive this object. `dir`: the run's use of --checkpoint-dir.
  TrainingRun(Engine& engine, const TrainOptions& options, const RunWatch& watch, CheckpointDir dir);
  ~TrainingRun();

  /// Returns the exit status: 0, or 128 + the signal that ended the run after a step. Throws DivergedError on all ranks
  /// if a loss, weight or optimizer state is not finite.
  [[nodiscard]] int run();

  /// The parts of a run, for replaying a step.
  /// @{
  /// Continues from a checkpoint that the engine has restored.
  void restore(const checkpoint::TrainerState& state);
  /// Makes all steps up to `last`, with the validations and saves due between them; on an asynchronous device, the last
  /// step is not reported. Returns the signal that ended it early; 0: none.
  [[nodiscard]] int advance(std::int64_t last);
  /// Makes the last step, which is not reported. Returns its learning rate and its results.
  std::pair<double, StepResults> make_step();
  /// @}

 private:
  bool leads() const { return ranks_.rank() == 0; }
  bool saved() const { return checkpoints_.saved(steps_); }
  bool due(std::int64_t every) const { return every > 0 && steps_ % every == 0 && steps_ < last_step(options_); }

  void begin();
  device::StepInputs step(bool more);
  std::vector<std::string> first_lines(std::vector<std::string> lines) const;
  checkpoint::TrainerState state() const;
  void report();
  void report_all();
  std::optional<double> validate();
  std::optional<double> held_out_loss();
  const char* answer_to_stop() const;
  int stop(int signal);
  void save_as_asked(std::int64_t asked);
  void save();
  int finish();

  comm::CatchSignals signals_{comm::CatchSignals::Later()};  ///< until the first step, a stop ends the process
  Engine& engine_;
  const EngineFacts& facts_;
  comm::Ranks ranks_;
  const TrainOptions& options_;
  const RunWatch& watch_;
  Samples samples_;
  EarlyStop early_stop_;
  RunLog log_;
  QueuedSteps queued_;
  RunCheckpoints checkpoints_;
  std::int64_t steps_ = 0;            ///< number of steps enqueued so far
  std::optional<double> held_out_;    ///< the held-out loss measured last
  std::int64_t validated_step_ = -1;  ///< the step after which it was measured
  std::int64_t saves_asked_ = 0;      ///< number of saves requested by signals that are done
  int stopped_ = 0;                   ///< the signal that ended a validation; 0: none
};

}  // namespace fsdp::train

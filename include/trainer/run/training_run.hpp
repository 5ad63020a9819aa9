// SPDX-License-Identifier: Apache-2.0
/// @file
/// The training loop of one rank: steps, metrics, held-out losses, samples, checkpoints, signals. Only rank 0 prints.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tessera/comm/launch/signals.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/generate/samples.hpp>
#include <tessera/trainer/report/metrics.hpp>
#include <tessera/trainer/run/engine.hpp>
#include <tessera/trainer/run/output_files.hpp>
#include <tessera/trainer/run/run_checkpoints.hpp>
#include <tessera/trainer/run/run_log.hpp>
#include <tessera/trainer/run/step_times.hpp>
#include <tessera/trainer/run/validation.hpp>

namespace fsdp::train {

/// Returns the records of parameter groups for a step with this learning rate, except groups with neither their own
/// learning rate nor their own norm. `norms`: norms of the groups that are clipped separately, in their order.
std::vector<report::GroupRecord> group_records(std::span<const OptimizerGroup> groups, double lr,
                                               std::span<const double> norms);

/// Trains with an engine. `run` is all of `tessera train` except its flags. A step makes few calls of the engine.
class TrainingRun {
 public:
  using Clock = std::chrono::steady_clock;

  /// The references must outlive this object. `dir`: the run's use of --checkpoint-dir.
  TrainingRun(Engine& engine, const TrainOptions& options, const RunWatch& watch, CheckpointDir dir);

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
  /// A step that was enqueued and is not reported. On an asynchronous device a step is reported after the next one was
  /// enqueued, which therefore still has the old loss scale.
  struct QueuedStep {
    std::int64_t number;  ///< number of the step; the first is 1
    device::StepInputs inputs;
    Clock::time_point begin;
  };

  bool leads() const { return ranks_.rank() == 0; }
  bool saved() const { return checkpoints_.saved(steps_); }
  bool due(std::int64_t every) const { return every > 0 && steps_ % every == 0 && steps_ < last_step(options_); }

  void begin();
  device::StepInputs step(bool more);
  void report();
  void report_all();
  std::optional<double> validate();
  int stop(int signal);
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
  RunCheckpoints checkpoints_;
  std::int64_t steps_ = 0;  ///< number of steps enqueued so far
  std::deque<QueuedStep> queued_;
  std::optional<DynamicLossScale> loss_scale_;
  std::int64_t tokens_ = 0;                      ///< tokens of all ranks in the reported steps
  std::optional<double> loss_;                   ///< loss of the step reported last
  std::optional<Clock::time_point> first_done_;  ///< end of the first step of this process
  Clock::time_point last_done_;  ///< end of the step reported last, from which the next step's time is measured
  StepMeter meter_;
  std::optional<double> held_out_;    ///< the held-out loss measured last
  std::int64_t validated_step_ = -1;  ///< the step after which it was measured
  std::int64_t saves_asked_ = 0;      ///< number of saves requested by signals that are done
  int stopped_ = 0;                   ///< the signal that ended a validation; 0: none
};

}  // namespace fsdp::train

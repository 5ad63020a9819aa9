// SPDX-License-Identifier: Apache-2.0
/// @file
/// Steps that the host has enqueued and not yet reported, with the resulting loss scale and number of tokens.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include <tessera/fsdp/device/operations/optimizer.hpp>
#include <tessera/fsdp/precision/loss_scale.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/report/metrics.hpp>
#include <tessera/trainer/run/engine.hpp>
#include <tessera/trainer/run/run_log.hpp>
#include <tessera/trainer/run/step_times.hpp>

namespace fsdp::train {

/// Returns the records of parameter groups for a step with this learning rate, except groups with neither their own
/// learning rate nor their own norm. `norms`: norms of the groups that are clipped separately, in their order.
std::vector<report::GroupRecord> group_records(std::span<const OptimizerGroup> groups, double lr,
                                               std::span<const double> norms);

/// Enqueued steps, reported in their order. On an asynchronous device a step is reported after the next one was
/// enqueued, which therefore still has the old loss scale. A step's time lasts from the end of the previous step to its
/// own end.
class QueuedSteps {
 public:
  using Clock = std::chrono::steady_clock;

  /// Both must outlive this object.
  QueuedSteps(const TrainOptions& options, RunLog& log);

  /// Continues from a checkpoint.
  void restore(std::int64_t tokens, const std::optional<DynamicLossScale::State>& loss_scale);

  /// The steps not yet reported.
  /// @{
  bool empty() const { return steps_.empty(); }
  std::int64_t size() const { return std::ssize(steps_); }
  /// @}

  /// Adds a step, whose batch is not read yet, and returns its learning rate and loss scale. `index` counts from 0.
  device::StepInputs add(std::int64_t index);
  /// Removes the oldest step, whose results have arrived, and logs it. Throws DivergedError if the device stopped the
  /// run.
  void report(const StepResults& results, const report::MatmulPeak& peak);

  /// The end of the first step; empty before.
  const std::optional<Clock::time_point>& first_done() const { return first_done_; }
  /// The times of reported steps after the first one.
  const StepMeter& meter() const { return meter_; }
  /// Tokens of all ranks in the reported steps.
  std::int64_t tokens() const { return tokens_; }
  /// Loss of the step reported last; empty before the first.
  const std::optional<double>& loss() const { return loss_; }
  /// State of the loss scale, for checkpoints; empty if loss scaling is off.
  std::optional<DynamicLossScale::State> loss_scale() const;

 private:
  struct QueuedStep {
    std::int64_t number;  ///< number of the step; the first is 1
    device::StepInputs inputs;
    Clock::time_point begin;
  };

  const TrainOptions& options_;
  RunLog& log_;
  std::deque<QueuedStep> steps_;
  std::optional<DynamicLossScale> loss_scale_;
  Clock::time_point last_done_;  ///< end of the step reported last
  std::optional<Clock::time_point> first_done_;
  StepMeter meter_;
  std::int64_t tokens_ = 0;
  std::optional<double> loss_;
};

}  // namespace fsdp::train

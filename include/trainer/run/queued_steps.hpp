// SPDX-License-Identifier: Apache-2.0
/// @file
/// The durations of a run's steps, and the steps that the host has enqueued and not yet reported.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include <tessera/comm/monitor.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/trainer/data/source.hpp>
#include <tessera/trainer/data/windows.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/report/metrics.hpp>
#include <tessera/trainer/run/engine.hpp>
#include <tessera/trainer/run/run_log.hpp>

namespace fsdp::train {

/// Returns the mean length of the documents in a source's training samples, weighted by their tokens. If there are many
/// samples, reads only a few hundred.
template <data::Source Source>
double mean_document_length(const Source& source, data::Allocate allocate) {
  typename Source::Storage storage = source.storage(1, allocate);
  double squares = 0, tokens = 0;
  for (const std::int64_t sample : data::evenly_spread(0, source.training(), 256)) {
    squares += static_cast<double>(source.fill(storage, std::span(&sample, 1)).counts().squares);
    tokens += static_cast<double>(source.sequence_length());
  }
  return tokens > 0 ? squares / tokens : 0;
}

/// Returns the seconds that this rank has spent so far in a module's collectives, waiting for other ranks or executing
/// them.
template <class Module>
double collective_seconds(Module& module) {
  double seconds = 0;
  for (auto* const axis : module.communicators()) {
    const comm::Totals& totals = axis->monitor().totals;
    seconds += totals.copy_seconds + totals.waiting_seconds;
  }
  return seconds;
}

/// Adds up the times of a rank's steps after the first, which has more to do.
class StepMeter {
 public:
  /// Adds a step. Either all steps have the seconds of collectives, or none does.
  void add(const report::StepTimes& step);

  /// The mean times of a step; empty before the first step is added.
  std::optional<report::StepTimes> mean() const;

 private:
  report::StepTimes sum_;
  std::int64_t steps_ = 0;
};

/// Returns the rank that computes longest, if it needs over a quarter more time than the median rank. Collective.
/// `mean`: this rank's; either all ranks have one, or none does.
std::optional<report::Straggler> straggler(const comm::Ranks& ranks, const std::optional<report::StepTimes>& mean);

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

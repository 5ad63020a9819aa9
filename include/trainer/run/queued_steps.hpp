// SPDX-License-Identifier: Apache-2.0
/// @file
/// Steps that the host has enqueued and not yet reported, with the loss scale and tokens that follow from them.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include <tessera/comm/traffic.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/precision/loss_scale.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/report/metrics.hpp>
#include <tessera/trainer/run/run_log.hpp>
#include <tessera/trainer/run/step_times.hpp>

namespace fsdp::report {
struct MatmulPeak;
}

namespace fsdp::train {

/// What the host knows of a step when it enqueues it.
struct QueuedStep {
  std::int64_t number;  ///< the first is 1
  BatchCounts counts;
  double lr, loss_scale;
  std::chrono::steady_clock::time_point begin;
  comm::MeshTraffic traffic = {};  ///< set once it is enqueued
  /// when the host saw that the device was done with it
  std::optional<std::chrono::steady_clock::time_point> done = {};
  std::optional<double> collective_seconds = {};  ///< of this rank; nothing on a device that has queues for them

  /// The divisor of the sum of losses.
  double targets() const;
};

/// Returns what a step of this learning rate did with groups of parameters, without those that have neither a
/// learning rate nor a norm of their own. `norms`: of those that are clipped apart, in their order.
std::vector<report::GroupRecord> group_records(std::span<const OptimizerGroup> groups, double lr,
                                               std::span<const double> norms);

/// Enqueued steps, reported in their order. On an asynchronous device a step is reported after the next one was
/// enqueued; that one still has the old loss scale. Enqueueing may take as long as the device does, where its queue is
/// full: the host then looks for the end of the oldest step meanwhile, so that a step's time is from the end of the
/// step before to its own.
class QueuedSteps {
 public:
  /// Both must outlive it.
  QueuedSteps(const TrainOptions& options, RunLog& log);

  /// Continues from a checkpoint.
  void restore(std::int64_t tokens, const std::optional<DynamicLossScale::State>& loss_scale);

  /// The steps not yet reported.
  /// @{
  bool empty() const { return steps_.empty(); }
  std::int64_t size() const { return std::ssize(steps_); }
  const QueuedStep& oldest() const { return steps_.front(); }
  /// @}

  /// Adds a step. `index` counts from 0; `begin`: before its batch was read.
  QueuedStep& add(std::int64_t index, const BatchCounts& counts, std::chrono::steady_clock::time_point begin);
  /// Whether the end of the oldest step is still to be seen while a later one is enqueued.
  bool looks_for_oldest() const { return size() > 1 && !oldest().done; }
  /// Takes the time: the device is done with the oldest step.
  void see_oldest_done();
  /// Removes the oldest step, of which the device's decision has arrived, and logs what the device decided about it.
  /// `norms`: of the groups of parameters that are clipped apart (StepControl::norms_apart); `flops`: of all ranks in
  /// that step. Throws DivergedError where the device stopped the run.
  void report(const device::StepDecision& found, std::span<const double> norms, double flops, std::int64_t peak_bytes,
              const report::MatmulPeak& peak);

  /// When the first step was done; nothing before.
  const std::optional<std::chrono::steady_clock::time_point>& first_done() const { return first_done_; }
  /// The times of reported steps after the first one.
  const StepMeter& meter() const { return meter_; }
  /// Tokens of all ranks in the reported steps.
  std::int64_t tokens() const { return tokens_; }
  /// Loss of the step reported last; nothing before the first.
  const std::optional<double>& loss() const { return loss_; }
  /// State of the loss scale, for checkpoints; nothing where it is off.
  std::optional<DynamicLossScale::State> loss_scale() const;

 private:
  const TrainOptions& options_;
  RunLog& log_;
  std::deque<QueuedStep> steps_;
  std::optional<DynamicLossScale> loss_scale_;
  std::chrono::steady_clock::time_point last_done_;  ///< end of the step reported last
  std::optional<std::chrono::steady_clock::time_point> first_done_;
  StepMeter meter_;
  std::int64_t tokens_ = 0;
  std::optional<double> loss_;
};

}  // namespace fsdp::train

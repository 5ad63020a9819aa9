// SPDX-License-Identifier: Apache-2.0
/// @file
/// Steps between the host's asking and their report, with the loss scale and the count of tokens that follow from them.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

#include <fsdp/device/operations/optimizer.hpp>
#include <fsdp/nn/batch.hpp>
#include <fsdp/precision/loss_scale.hpp>
#include <fsdp/train/options.hpp>
#include <fsdp/train/run_log.hpp>

namespace fsdp::report {
struct MatmulPeak;
}

namespace fsdp::train {

/// What the host knows of a step when it asks the device for it.
struct QueuedStep {
  std::int64_t number;  ///< the first is 1
  BatchCounts counts;
  double lr, loss_scale;
  std::chrono::steady_clock::time_point begin;

  /// What the sum of losses is divided by.
  double targets() const;
};

/// The oldest step is reported first. On an asynchronous device that is one step late: the next one is on its way by
/// then, with the loss scale of before.
class QueuedSteps {
 public:
  /// Both must outlive it.
  QueuedSteps(const TrainOptions& options, RunLog& log);

  /// Carries on from a checkpoint.
  void restore(std::int64_t tokens, const std::optional<DynamicLossScale::State>& loss_scale);

  /// Steps that were added and not yet reported.
  /// @{
  bool empty() const { return steps_.empty(); }
  std::int64_t size() const { return std::ssize(steps_); }
  const QueuedStep& oldest() const { return steps_.front(); }
  /// @}

  /// A step that began, with the drawing of its batch, at `begin`; `index` counts from 0.
  const QueuedStep& add(std::int64_t index, const BatchCounts& counts, std::chrono::steady_clock::time_point begin);
  /// What the device decided of the oldest one, which took `flops`. Throws DivergedError where it stopped the run.
  void report(const device::StepDecision& found, double flops, std::int64_t peak_bytes, const report::MatmulPeak& peak);

  /// Seen by all ranks in the steps that were reported.
  std::int64_t tokens() const { return tokens_; }
  /// Of the step reported last; nothing before the first.
  const std::optional<double>& loss() const { return loss_; }
  /// For checkpoints; nothing where it is off.
  std::optional<DynamicLossScale::State> loss_scale() const;

 private:
  const TrainOptions& options_;
  RunLog& log_;
  std::deque<QueuedStep> steps_;
  std::optional<DynamicLossScale> loss_scale_;
  std::chrono::steady_clock::time_point reported_;  ///< when the last one was
  std::int64_t tokens_ = 0;
  std::optional<double> loss_;
};

}  // namespace fsdp::train

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Windows as micro-batches, with the memory that the micro-batches refer to: the part of tests/support/steps_ahead.hpp
/// that does not depend on a stack and is compiled once.
#pragma once

#include <cstdint>
#include <deque>
#include <future>
#include <optional>
#include <span>
#include <vector>

#include <tessera/fsdp/module/module_plan.hpp>
#include <tessera/fsdp/nn/token_batch.hpp>

#include <support/stack_runner.hpp>

namespace fsdp::test {

/// Combines windows into one micro-batch and owns its memory.
class BatchMemory {
 public:
  BatchMemory();
  BatchMemory(const BatchMemory&) = delete;
  BatchMemory& operator=(const BatchMemory&) = delete;
  ~BatchMemory();

  TokenBatch add(std::span<const Window> windows);
  TokenBatch add(const Batch& windows, const Place& place);

 private:
  std::vector<std::vector<std::int64_t>> documents_;         // [batches]: cumulative lengths
  std::vector<std::vector<std::int32_t>> tokens_, targets_;  // moving a vector does not move its elements
};

/// A step's micro-batches, with their memory.
struct DrawnStep {
  std::int64_t step = 0;
  BatchMemory memory = {};
  std::vector<TokenBatch> micro_batches = {};
  double targets = 0;
  std::optional<std::promise<void>> gate = {};
};

/// The steps that have begun and are not complete yet, then the one whose batches are drawn ahead.
class DrawnSteps {
 public:
  /// Both arguments must outlive this object.
  DrawnSteps(const ModuleState& module, const RunOptions& options);
  DrawnSteps(const DrawnSteps&) = delete;
  DrawnSteps& operator=(const DrawnSteps&) = delete;
  ~DrawnSteps();

  /// Number of targets of the step that began last.
  double targets() const;
  std::int64_t steps() const { return static_cast<std::int64_t>(begun_); }

  /// Lets work that waits for the oldest step's gate continue: its results are read next. Returns its number of
  /// targets.
  double release_oldest();
  void forget_oldest();

 protected:
  bool is_drawn(std::int64_t step) const;
  /// Draws this rank's micro-batches of a step and counts them.
  BatchCounts draw(std::int64_t step);
  /// Begins the step that was drawn last, which has this number of targets on all ranks.
  const DrawnStep& begin(std::int64_t targets);
  /// A gate of the step that began last, if it is not the only one: work may wait for it.
  std::shared_future<void> shut_gate();

 private:
  const ModuleState& module_;
  const RunOptions& options_;
  std::deque<DrawnStep> drawn_;
  std::size_t begun_ = 0;
};

}  // namespace fsdp::test

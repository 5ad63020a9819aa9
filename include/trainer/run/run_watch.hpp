// SPDX-License-Identifier: Apache-2.0
/// @file
/// The time since a run began, and the trace of its tasks (--trace).
#pragma once

#include <chrono>
#include <cstdint>

#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/report/trace.hpp>

namespace fsdp::train {

/// Measures one rank of a run. Construct it before any slow operation.
class RunWatch {
 public:
  using Clock = std::chrono::steady_clock;

  /// Throws InputError if the file of --trace cannot be created. `rank`: determines the file's name.
  RunWatch(const TrainOptions& options, int rank);

  /// Seconds from the start of the run until a point in time.
  double seconds(Clock::time_point until = Clock::now()) const;

  /// Returns whether tasks are traced. If so, call `before` and `after` around each task. `held`: bytes that the rank
  /// holds then; `activations`: bytes of activations in use.
  /// @{
  bool traces() const { return trace_.on(); }
  void before() { task_begin_ = Clock::now(); }
  void after(const sharding::Task& task, const device::BytesByKind& held, std::int64_t activations);
  /// @}
  /// Writes the trace, if --trace is given.
  void write() const { trace_.write(); }

 private:
  Clock::time_point start_ = Clock::now();
  Clock::time_point task_begin_ = {};
  int rank_;
  report::Trace trace_;
};

}  // namespace fsdp::train

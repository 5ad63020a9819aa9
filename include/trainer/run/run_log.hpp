// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a run reports of its course: its time and the trace of its tasks, and the log on console, metrics file, file
/// of digests and TensorBoard.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/execution/step_digest.hpp>
#include <tessera/fsdp/sharding/schedule.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/report/console.hpp>
#include <tessera/trainer/report/digest_file.hpp>
#include <tessera/trainer/report/metrics.hpp>
#include <tessera/trainer/report/tensorboard.hpp>
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

/// Writes on rank 0 only. On other ranks every call does nothing, except `open`, which is collective.
class RunLog {
 public:
  /// Opens nothing yet. `options` must outlive this object. `unit`: unit of sequences (nn::unit_of), a string literal.
  RunLog(const comm::Ranks& ranks, const TrainOptions& options, std::string_view unit);
  ~RunLog();

  /// Returns whether this rank writes: true on rank 0.
  bool speaks() const { return ranks_.rank() == 0; }
  /// Opens the files. Collective; throws InputError on all ranks if one cannot be opened.
  void open();

  /// Logs the start of the run. `text` and `lines` are printed on the console only.
  void begin(const report::StartRecord& record, const std::string& text, std::span<const std::string> lines);
  /// Logs a step.
  void step(const report::StepRecord& record);
  /// Writes the digests of a step to their file.
  void digests(std::int64_t step, std::span<const StepDigest> digests);
  /// Logs a held-out loss. `unit`: such as "nats per token"; empty if the model's batch does not define one.
  void held_out(const report::ValidationRecord& record, std::string_view unit);
  /// Logs a text that the model wrote.
  void sample(const report::SampleRecord& record);
  /// Logs the end of the run.
  void end(const report::SummaryRecord& record);
  /// Reports that a signal ended the run: on the console, and also on stderr unless both are the same file.
  void stopped(const std::string& sentence);
  /// Returns whether the console is a pipe whose reader has closed it.
  bool reader_is_gone() const { return console_ && console_->reader_is_gone(); }
  /// Prints a line on the console only.
  void line(const std::string& text);
  /// Shows a text in the progress line, if the console is a terminal, until the next update replaces it.
  void progress(const std::string& text);
  /// Removes the progress line.
  void finish();

 private:
  template <class Record>
  void write(const Record& record);

  comm::Ranks ranks_;
  const TrainOptions& options_;
  std::string_view unit_;
  report::Metrics metrics_;
  report::DigestWriter digests_;
  report::TensorBoard tensorboard_;
  std::optional<report::Console> console_;
};

}  // namespace fsdp::train

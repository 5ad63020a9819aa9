// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a run says while it trains: console, metrics file, TensorBoard.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <comm/ranks.hpp>
#include <fsdp/report/console.hpp>
#include <fsdp/report/metrics.hpp>
#include <fsdp/report/tensorboard.hpp>
#include <fsdp/train/options.hpp>

namespace fsdp::train {

/// Rank 0's; on other ranks every call but `open` does nothing.
class RunLog {
 public:
  /// Nothing is opened yet. `options` must outlive it.
  RunLog(const comm::Ranks& ranks, const TrainOptions& options);
  ~RunLog();

  /// Whether this rank speaks.
  bool speaks() const { return ranks_.rank() == 0; }
  /// Collective; throws InputError on all ranks where a file cannot be opened.
  void open();

  /// How the run starts: `text` and `lines` are for people.
  void begin(const report::StartRecord& record, const std::string& text, std::span<const std::string> lines);
  /// A step.
  void step(const report::StepRecord& record);
  /// A loss on held-out data; `unit` is empty where it has none.
  void held_out(const report::ValidationRecord& record, std::string_view unit);
  /// What the model writes.
  void sample(const report::SampleRecord& record);
  /// How the run ended.
  void end(const report::SummaryRecord& record);
  /// Anything else, for people.
  void line(const std::string& text);
  /// What is going on, on a terminal alone, until the next line of progress.
  void progress(const std::string& text);
  /// Removes the progress line.
  void finish();

 private:
  template <class Record>
  void write(const Record& record);

  comm::Ranks ranks_;
  const TrainOptions& options_;
  report::Metrics metrics_;
  report::TensorBoard tensorboard_;
  std::optional<report::Console> console_;
};

}  // namespace fsdp::train

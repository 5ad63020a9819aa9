// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the terminal shows of long operations and of a run: progress lines, and a line for each logged step.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include <tessera/trainer/report/metrics.hpp>

namespace fsdp::report {

/// Prints to stderr if that is a terminal; otherwise prints nothing.
class ProgressLine {
 public:
  ProgressLine() = default;
  ProgressLine(const ProgressLine&) = delete;
  ~ProgressLine();  ///< erases the line

  void show(const std::string& text);  ///< replaces the previous text, which must not be longer than the new one

 private:
  int width_ = 0;
};

/// A progress line with the number of processed bytes, their total and the percentage (ProgressLine).
class ByteProgress {
 public:
  /// `doing`: the activity, such as "tokenizing FILE".
  explicit ByteProgress(const std::string& doing);

  /// Updates the line whenever the percentage changes. `more`: text to append, such as ", 1,234 tokens".
  void show(std::int64_t done, std::int64_t all, const std::string& more = {});

 private:
  ProgressLine line_;
  std::string doing_;
  int percent_ = -1;
};

/// The display capabilities of a stream.
struct ConsoleStyle {
  bool terminal = false;  ///< lines can be overwritten
  bool colour = false;
};

/// Returns the style of a stream. `terminal` is false if TERM is unset or "dumb", or if the output of Open MPI's mpirun
/// is not a terminal. `colour` is set on a terminal unless NO_COLOR is set and not empty.
ConsoleStyle style_of(std::FILE* stream);

/// Returns whether two streams write to the same file or terminal, so that a line in both would appear twice.
bool are_same_file(std::FILE* a, std::FILE* b);

/// Returns "step  12/200  loss 3.1416  norm 1.020  lr 1.00e-03  8,123 tok/s  peak 1.20 GiB", or "8,123 points/s".
std::string step_text(const StepRecord& record, std::int64_t steps, std::string_view unit = "tokens");

/// Returns "[======>      ] 50%  step 100/200  loss 2.1000  1:05 left".
std::string progress_text(const StepRecord& record, std::int64_t steps, double seconds_left);

std::string duration_text(double seconds);  ///< "0:07", "12:34", "1:02:03"

/// Prints steps and progress as printable text, on one rank only. A default-constructed Console prints nothing.
class Console {
 public:
  Console() = default;
  Console(std::FILE* stream, ConsoleStyle style, std::int64_t first_step, std::int64_t steps, std::int64_t log_every,
          std::string_view unit = "tokens");
  ~Console();
  Console(Console&&) = delete;
  Console& operator=(Console&&) = default;  ///< of a Console that shows no progress line yet

  void step(const StepRecord& record);  ///< prints the step's line if it is to be logged, and updates the progress line
  void line(const std::string& text);   ///< prints any other line above the progress line
  void progress(const std::string& text);  ///< replaces the progress line
  void finish();                           ///< erases the progress line

  /// Whether the stream is a pipe whose reader has closed it.
  bool output_is_closed() const { return reader_is_gone_; }

 private:
  std::string erased() const;
  void write(const std::string& text);

  std::FILE* stream_ = nullptr;
  ConsoleStyle style_;
  std::int64_t first_step_ = 1, steps_ = 0, log_every_ = 1;
  std::string_view unit_;  ///< unit of sequences, such as "tokens"
  double seconds_ = 0;     ///< total seconds of the steps so far
  std::string progress_;   ///< the displayed progress line
  bool reader_is_gone_ = false;
};

}  // namespace fsdp::report

// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a person sees while training: a line for each logged step, and one progress line on a terminal.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include <fsdp/report/metrics.hpp>

namespace fsdp::report {

struct ConsoleStyle {
  bool terminal = false;  ///< a line may be overwritten
  bool colour = false;
};

/// Of a stream: a terminal unless TERM is "dumb"; colour there unless NO_COLOR is set and not empty.
ConsoleStyle style_of(std::FILE* stream);

/// "step 12/200  loss 3.1416  norm 1.02  lr 1.0e-03  8,123 tok/s  peak 1.20 GiB".
std::string step_text(const StepRecord& record, std::int64_t steps);

/// "[======>      ] 50%  step 100/200  loss 2.1  1:05 left".
std::string progress_text(const StepRecord& record, std::int64_t steps, double seconds_left);

/// "0:07", "12:34", "1:02:03".
std::string duration_text(double seconds);

/// Only one rank has one. A default one prints nothing.
class Console {
 public:
  Console() = default;
  Console(std::FILE* stream, ConsoleStyle style, std::int64_t first_step, std::int64_t steps, std::int64_t log_every);
  ~Console();
  Console(Console&&) = delete;

  void step(const StepRecord& record);  ///< prints the step's line where it is due, and the progress line
  void line(const std::string& text);   ///< anything else; the progress line stays below it
  void progress(std::string text);      ///< the progress line itself
  void finish();                        ///< removes it

 private:
  void erase();

  std::FILE* stream_ = nullptr;
  ConsoleStyle style_;
  std::int64_t first_step_ = 1, steps_ = 0, log_every_ = 1;
  double seconds_ = 0;    ///< of the steps so far
  std::string progress_;  ///< shown at the moment
};

}  // namespace fsdp::report

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lines on a terminal that are updated in place while something takes long.
#pragma once

#include <cstdint>
#include <string>

namespace fsdp::report {

/// Prints to stderr if that is a terminal; otherwise prints nothing.
class ProgressLine {
 public:
  ProgressLine() = default;
  ProgressLine(const ProgressLine&) = delete;
  /// Erases the line.
  ~ProgressLine();

  /// Replaces the last text, which must not be longer.
  void show(const std::string& text);

 private:
  int width_ = 0;
};

/// Shows how many bytes of how many are done (ProgressLine).
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

}  // namespace fsdp::report

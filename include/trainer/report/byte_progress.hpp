// SPDX-License-Identifier: Apache-2.0
/// @file
/// Progress lines on a terminal, updated in place during long operations.
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

  /// Replaces the previous text, which must not be longer than the new one.
  void show(const std::string& text);

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

}  // namespace fsdp::report

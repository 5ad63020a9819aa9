// SPDX-License-Identifier: Apache-2.0
/// @file
/// A line on a terminal that is updated in place while something takes long.
#pragma once

#include <string>

namespace fsdp::report {

/// Prints to stderr if that is a terminal; otherwise prints nothing.
class ProgressLine {
 public:
  ProgressLine() = default;
  ProgressLine(const ProgressLine&) = delete;
  /// Erases the line.
  ~ProgressLine();

  /// Shows the text in place of the last one, which is no longer.
  void show(const std::string& text);

 private:
  int width_ = 0;
};

}  // namespace fsdp::report

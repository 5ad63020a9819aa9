// SPDX-License-Identifier: Apache-2.0
/// @file
/// A progress line in bytes for a terminal, updated in place.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/trainer/report/progress_line.hpp>

namespace fsdp::report {

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

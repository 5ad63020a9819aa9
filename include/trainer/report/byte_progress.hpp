// SPDX-License-Identifier: Apache-2.0
/// @file
/// A progress line in bytes for a terminal, updated in place.
#pragma once

#include <cstdint>
#include <string>

namespace fsdp::report {

/// Prints to stderr if that is a terminal; otherwise prints nothing.
class ByteProgress {
 public:
  /// `doing`: the activity, such as "tokenizing FILE".
  explicit ByteProgress(const std::string& doing);
  ByteProgress(const ByteProgress&) = delete;
  /// Erases the line.
  ~ByteProgress();

  /// Updates the line whenever the percentage changes. `more`: text to append, such as ", 1,234 tokens".
  void show(std::int64_t done, std::int64_t all, const std::string& more = {});

 private:
  std::string doing_;
  int percent_ = -1, width_ = 0;
};

}  // namespace fsdp::report

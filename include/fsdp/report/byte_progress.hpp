// SPDX-License-Identifier: Apache-2.0
/// @file
/// How far a command is with its bytes: a line on a terminal that is written over, and is gone with this object.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace fsdp::report {

/// On stderr, where that is a terminal; else nothing is printed.
class ByteProgress {
 public:
  explicit ByteProgress(std::string doing) : doing_(std::move(doing)) {}
  ByteProgress(const ByteProgress&) = delete;
  ~ByteProgress();

  /// `more`: what else is to be said, such as ", 1,234 tokens".
  void show(std::int64_t done, std::int64_t all, const std::string& more = {});

 private:
  std::string doing_;
  int percent_ = -1, width_ = 0;
};

}  // namespace fsdp::report

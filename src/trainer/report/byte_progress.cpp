// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/byte_progress.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/trainer/report/report.hpp>

namespace fsdp::report {

ByteProgress::ByteProgress(const std::string& doing) : doing_(printable(doing)) {}

ByteProgress::~ByteProgress() {
  if (percent_ >= 0) std::fprintf(stderr, "\r%*s\r", width_, "");
}

void ByteProgress::show(std::int64_t done, std::int64_t all, const std::string& more) {
  const int percent = static_cast<int>(done * 100 / std::max<std::int64_t>(all, 1));
  if (percent == percent_ || ::isatty(STDERR_FILENO) != 1) return;
  percent_ = percent;
  width_ = std::max(width_, std::fprintf(stderr, "\r%s %s of %s, %d %%%s", doing_.c_str(), bytes_text(done).c_str(),
                                         bytes_text(all).c_str(), percent, more.c_str()));
}

}  // namespace fsdp::report

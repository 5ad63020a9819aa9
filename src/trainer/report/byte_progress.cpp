// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/byte_progress.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/trainer/report/report.hpp>

namespace fsdp::report {

ProgressLine::~ProgressLine() {
  if (width_ > 0) std::fprintf(stderr, "\r%*s\r", width_, "");
}

void ProgressLine::show(const std::string& text) {
  if (::isatty(STDERR_FILENO) != 1) return;
  width_ = std::max(width_, std::fprintf(stderr, "\r%s", text.c_str()));
}

ByteProgress::ByteProgress(const std::string& doing) : doing_(printable(doing)) {}

void ByteProgress::show(std::int64_t done, std::int64_t all, const std::string& more) {
  const int percent = static_cast<int>(done * 100 / std::max<std::int64_t>(all, 1));
  if (percent == percent_) return;
  percent_ = percent;
  line_.show(message(doing_, " ", bytes_text(done), " of ", bytes_text(all), ", ", percent, " %", more));
}

}  // namespace fsdp::report

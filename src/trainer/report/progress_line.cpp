// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/progress_line.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace fsdp::report {

ProgressLine::~ProgressLine() {
  if (width_ > 0) std::fprintf(stderr, "\r%*s\r", width_, "");
}

void ProgressLine::show(const std::string& text) {
  if (::isatty(STDERR_FILENO) != 1) return;
  width_ = std::max(width_, std::fprintf(stderr, "\r%s", text.c_str()));
}

}  // namespace fsdp::report

// SPDX-License-Identifier: Apache-2.0
#include "cli/plot.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <fsdp/core/error.hpp>

#include "report/plot.hpp"

namespace fsdp::cli {
namespace {

constexpr std::size_t most_named = 10;  // lines to warn about in each file

void warn_of(const report::PlottedRun& run) {
  for (std::size_t i = 0; i < run.left_out.size() && i < most_named; ++i)
    std::fprintf(stderr, "tessera: warning: %s; left out\n", run.left_out[i].c_str());
  if (run.left_out.size() > most_named)
    std::fprintf(stderr, "tessera: warning: %s: %zu more lines like these\n", run.name.c_str(),
                 run.left_out.size() - most_named);
}

}  // namespace

int run_plot(const Plot& command) {
  std::vector<report::PlottedRun> runs;
  for (const std::string& file : command.files) {
    runs.push_back(report::read_run(file));
    warn_of(runs.back());
  }
  errno = 0;
  std::ofstream out(command.out, std::ios::binary);
  require<InputError>(out.is_open(), "--out ", command.out, ": cannot be written: ", std::strerror(errno));
  out << report::svg_of(runs) << std::flush;
  require<InputError>(out.good(), "--out ", command.out, ": cannot be written (is the disk full?)");
  std::printf("%s\n", command.out.c_str());
  return 0;
}

}  // namespace fsdp::cli

// SPDX-License-Identifier: Apache-2.0
#include "plot.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "../../trainer/report/plot.hpp"

namespace fsdp::cli {
namespace {

constexpr std::size_t most_named = 10;  // lines to warn about in each file

void warn_of(const report::PlottedRun& run) {
  for (std::size_t i = 0; i < run.left_out.size() && i < most_named; ++i) print_warning(run.left_out[i] + "; left out");
  if (run.left_out.size() > most_named)
    print_warning(message(run.name, ": ", run.left_out.size() - most_named, " more lines like these"));
}

}  // namespace

int run_plot(const Plot& command) {
  std::error_code error;
  for (const std::string& file : command.files)
    require<InputError>(!std::filesystem::equivalent(file, command.out, error), "--out ", command.out, " is ", file,
                        ", which is to be drawn; give the picture a name of its own");
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
  print_text(stdout, command.out + "\n");
  return 0;
}

}  // namespace fsdp::cli

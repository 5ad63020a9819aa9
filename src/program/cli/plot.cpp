// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "../../trainer/report/output_file.hpp"
#include "../../trainer/report/plot.hpp"
#include "files.hpp"
#include "left_out.hpp"

namespace fsdp::cli {

int run(const Plot& command) {
  std::error_code error;
  for (const std::string& file : command.files)
    require<InputError>(!std::filesystem::equivalent(file, command.out, error), "--out ", command.out, " is ", file,
                        ", which is to be drawn; give the picture a name of its own");
  std::vector<report::PlottedRun> runs;
  for (const std::string& file : command.files) {
    runs.push_back(report::read_run(file));
    warn_of_left_out(runs.back().name, runs.back().left_out);
  }
  const FileDescriptor fifo = report::require_writable("--out", command.out);
  report::write_output("--out", command.out, report::svg_of(runs));
  print_text(stdout, command.out + "\n");
  return 0;
}

}  // namespace fsdp::cli

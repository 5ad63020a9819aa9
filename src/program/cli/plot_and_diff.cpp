// SPDX-License-Identifier: Apache-2.0
#include "files.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/report/digest_diff.hpp>

#include "../../trainer/report/plot.hpp"

namespace fsdp::cli {
namespace {

/// Warns of the lines of a file that are left out. `like_these`: what those are called of which it gives the number.
void warn_of(const std::string& file, std::span<const std::string> left_out, const char* like_these) {
  constexpr std::size_t most_named = 10;
  for (const std::string& line : left_out.first(std::min(left_out.size(), most_named)))
    print_warning(line + "; left out");
  if (left_out.size() > most_named) print_warning(message(file, ": ", left_out.size() - most_named, like_these));
}

report::DigestSource read(const std::string& path) {
  report::DigestSource source = report::read_source(path);
  warn_of(source.file.name, source.file.left_out, " more like these");
  return source;
}

}  // namespace

int run(const Plot& command) {
  std::error_code error;
  for (const std::string& file : command.files)
    require<InputError>(!std::filesystem::equivalent(file, command.out, error), "--out ", command.out, " is ", file,
                        ", which is to be drawn; give the picture a name of its own");
  std::vector<report::PlottedRun> runs;
  for (const std::string& file : command.files) {
    runs.push_back(report::read_run(file));
    warn_of(file, runs.back().left_out, " more lines like these");
  }
  errno = 0;
  std::ofstream out(command.out, std::ios::binary);
  require<InputError>(out.is_open(), "--out ", command.out, ": cannot be written: ", std::strerror(errno));
  out << report::svg_of(runs) << std::flush;
  require<InputError>(out.good(), "--out ", command.out, ": cannot be written (is the disk full?)");
  print_text(stdout, command.out + "\n");
  return 0;
}

int run(const Diff& command) {
  const report::DigestSource a = read(command.a), b = read(command.b);
  const report::DigestDiff found = report::diff(a, b);
  for (const std::string& line : found.lines) print_text(stdout, line + "\n");
  return found.same ? 0 : 1;
}

}  // namespace fsdp::cli

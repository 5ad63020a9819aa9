// SPDX-License-Identifier: Apache-2.0
/// @file
/// `plot` and `diff`: curves and comparisons of files that runs wrote.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/report/digest_diff.hpp>

#include "../../trainer/report/output_file.hpp"
#include "../../trainer/report/plot.hpp"
#include "commands.hpp"

namespace fsdp::cli {
namespace {

/// Prints a warning for each of the first omitted lines of a file, and the number of the others.
void warn_of_left_out(const std::string& file, std::span<const std::string> sentences) {
  constexpr std::size_t most_named = 10;
  for (const std::string& sentence : sentences.first(std::min(sentences.size(), most_named)))
    print_warning(sentence + "; left out");
  if (sentences.size() > most_named)
    print_warning(message(file, ": ", sentences.size() - most_named, " more lines like these"));
}

report::DigestSource read(const std::string& path) {
  report::DigestSource source = report::read_source(path);
  warn_of_left_out(source.file.name, source.file.left_out);
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
    warn_of_left_out(runs.back().name, runs.back().left_out);
  }
  const FileDescriptor fifo = report::require_writable("--out", command.out);
  report::write_output("--out", command.out, report::svg_of(runs));
  print_text(stdout, command.out + "\n");
  return 0;
}

int run(const Diff& command) {
  const report::DigestSource a = read(command.a), b = read(command.b);
  const report::DigestDiff found = report::diff(a, b);
  for (const std::string& line : found.lines) print_text(stdout, line + "\n");
  if (!found.same) print_sentence(message("diff: ", command.a, " and ", command.b, " differ; stdout shows where"));
  return found.same ? 0 : 1;
}

}  // namespace fsdp::cli

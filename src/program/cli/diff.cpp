// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/report/digest_diff.hpp>

#include "files.hpp"
#include "left_out.hpp"

namespace fsdp::cli {
namespace {

report::DigestSource read(const std::string& path) {
  report::DigestSource source = report::read_source(path);
  warn_of_left_out(source.file.name, source.file.left_out);
  return source;
}

}  // namespace

int run(const Diff& command) {
  const report::DigestSource a = read(command.a), b = read(command.b);
  const report::DigestDiff found = report::diff(a, b);
  for (const std::string& line : found.lines) print_text(stdout, line + "\n");
  if (!found.same) print_sentence(message("diff: ", command.a, " and ", command.b, " differ; stdout shows where"));
  return found.same ? 0 : 1;
}

}  // namespace fsdp::cli

// SPDX-License-Identifier: Apache-2.0
#include "diff.hpp"

#include <cstddef>
#include <cstdio>
#include <string>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/report/digest_diff.hpp>

namespace fsdp::cli {
namespace {

constexpr std::size_t most_warnings = 10;  // lines to warn about in each file

report::DigestSource read(const std::string& path) {
  report::DigestSource source = report::read_source(path);
  const auto& left_out = source.file.left_out;
  for (std::size_t i = 0; i < left_out.size() && i < most_warnings; ++i) print_warning(left_out[i] + "; left out");
  if (left_out.size() > most_warnings)
    print_warning(message(source.file.name, ": ", left_out.size() - most_warnings, " more like these"));
  return source;
}

}  // namespace

int run_diff(const Diff& command) {
  const report::DigestSource a = read(command.a), b = read(command.b);
  const report::DigestDiff found = report::diff(a, b);
  for (const std::string& line : found.lines) print_text(stdout, line + "\n");
  return found.same ? 0 : 1;
}

}  // namespace fsdp::cli

// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>

#include <comm/signals.hpp>
#include <fsdp/checkpoint/export.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/report/byte_progress.hpp>
#include <fsdp/report/report.hpp>

#include "cli/folders.hpp"
#include "cli/listed.hpp"

namespace fsdp::cli {
namespace {

/// Thrown between two pieces of an export to end it.
struct Stopped {
  int signal;
};

}  // namespace

int run_export(const Export& command) {
  const comm::CatchSignals signals;
  try {
    const checkpoint::Exported result = [&] {
      report::ByteProgress progress("writing");
      return checkpoint::export_model({.from = command.from,
                                       .to = command.to,
                                       .dtype = command.type.dtype,
                                       .shard_bytes = command.shard_bytes,
                                       .files_from = command.files_from,
                                       .adapter = command.adapter,
                                       .merge = command.merge},
                                      checkpoint::read_listing_with<Listed>(command.adapter), warn,
                                      [&](std::int64_t done, std::int64_t all) {
                                        if (const int signal = signals.asked().stop; signal != 0) throw Stopped{signal};
                                        progress.show(done, all);
                                      });
    }();
    std::string text =
        message("exported ", result.from.string(), " to ", command.to, ": ", report::bytes_text(result.bytes), " of ",
                name_of(command.type.dtype), " in ", result.files, result.files == 1 ? " file" : " files");
    for (std::size_t i = 0; i < result.copied.size(); ++i) text += (i == 0 ? "; with " : ", ") + result.copied[i];
    std::printf("%s\n", text.c_str());
    return 0;
  } catch (const Stopped& stopped) {
    std::fprintf(stderr, "tessera: %s: nothing of the export is kept\n", comm::name_of_stop(stopped.signal));
    return 128 + stopped.signal;
  }
}

}  // namespace fsdp::cli

// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>

#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/launch/signals.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/model_files/export.hpp>
#include <tessera/trainer/report/byte_progress.hpp>
#include <tessera/trainer/report/report.hpp>

#include "files.hpp"
#include "listed.hpp"

namespace fsdp::cli {

int run(const Export& command) {
  const comm::CatchSignals signals;
  const checkpoint::Exported result = [&] {
    report::ByteProgress progress("writing");
    return checkpoint::export_model({.from = command.from,
                                     .to = command.to,
                                     .dtype = command.type.dtype,
                                     .shard_bytes = command.shard_bytes,
                                     .files_from = command.files_from,
                                     .adapter = command.adapter,
                                     .merge = command.merge},
                                    checkpoint::read_listing_with<Listed>(command.adapter), print_warning,
                                    [&](std::int64_t done, std::int64_t all) {
                                      signals.throw_if_stopped("nothing of the export is kept");
                                      progress.show(done, all);
                                    });
  }();
  std::string text =
      message("exported ", result.from.string(), " to ", command.to, ": ", report::bytes_text(result.bytes), " of ",
              name_of(command.type.dtype), " in ", result.files, result.files == 1 ? " file" : " files");
  for (std::size_t i = 0; i < result.copied.size(); ++i) text += (i == 0 ? "; with " : ", ") + result.copied[i];
  print_text(stdout, text + "\n");
  return 0;
}

}  // namespace fsdp::cli

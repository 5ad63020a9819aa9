// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/launch/signals.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/model_files/export.hpp>
#include <tessera/trainer/report/byte_progress.hpp>
#include <tessera/trainer/report/report.hpp>

#include "commands.hpp"
#include "listed.hpp"

namespace fsdp::cli {
namespace {

/// Reports the effect of a merge; as a warning if rounding loses half of the change or more, or if there was nothing to
/// merge.
void report_merge(const checkpoint::MergeEffect& effect, std::string_view type) {
  if (effect.wanted == 0)
    return print_warning("merging changed nothing: the product of the adapters is zero, as before a first step");
  const auto percent = [](double share) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.3g %%", 100 * share);
    return std::string(text.data());
  };
  const double changed = static_cast<double>(effect.changed) / static_cast<double>(effect.weights);
  const double lost = effect.lost_share();
  const std::string text =
      message("merging changed ", percent(changed), " of the weights that have adapters; rounding to ", type, " loses ",
              percent(lost), " of the adapters' effect (relative norm)", type == "f32" ? "" : "; --dtype f32 keeps it");
  if (lost >= 0.5)
    print_warning(text);
  else
    print_text(stdout, text + "\n");
}

}  // namespace

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
  for (const char* between = "; with "; const std::string& name : result.copied)
    text += std::exchange(between, ", ") + name;
  print_text(stdout, text + "\n");
  if (result.merge) report_merge(*result.merge, name_of(command.type.dtype));
  return 0;
}

}  // namespace fsdp::cli

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sub-commands export, tokenize, plot and diff.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/launch/signals.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/model_files/export.hpp>
#include <tessera/trainer/generate/model_folder.hpp>
#include <tessera/trainer/report/console.hpp>
#include <tessera/trainer/report/digest_diff.hpp>
#include <tessera/trainer/report/report.hpp>

#include "../../trainer/report/files.hpp"
#include "../../trainer/report/plot.hpp"
#include "commands.hpp"
#include "listed.hpp"

namespace fsdp::cli {
namespace {

/// Reports the effect of a merge; as a warning if it changed nothing or rounding loses half of it or more.
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

int run(const Tokenize& command) {
  data::TokenizeRequest request = command.request;
  request.inputs.assign(command.inputs.begin(), command.inputs.end());
  request.tokenizer = command.tokenizer;
  data::Tokenizing tokenizing(request);
  train::warn_of(tokenizing.tokenizer());
  for (const std::string& warning : tokenizing.warnings()) print_warning(warning);
  const comm::CatchSignals signals;
  const auto begin = std::chrono::steady_clock::now();
  const data::Tokenized made = [&] {
    report::ByteProgress progress("tokenizing");
    return tokenizing.write(command.out, [&](const data::TokenizeProgress& at) {
      signals.throw_if_stopped("tokenization is incomplete; run `tessera tokenize` again, it resumes");
      progress.show(at.bytes, at.all_bytes, message(", ", report::count_text(at.tokens), " tokens"));
    });
  }();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const data::TokenizeProgress& total = made.total;
  std::string text = message("tokens    ", report::count_text(total.tokens), " of ",
                             report::count_text(total.documents), total.documents == 1 ? " document" : " documents",
                             " in ", made.files, made.files == 1 ? " file of " : " files of ", command.out, "\n");
  if (made.already_complete) {
    text += "time      none: they were complete\n";
  } else {
    if (made.resumed_at_bytes > 0)
      text += message("resumed   ", report::bytes_text(made.resumed_at_bytes), " of text were done before\n");
    const double megabytes = static_cast<double>(total.bytes - made.resumed_at_bytes) / 1e6;
    text += message("text      ", report::bytes_text(total.all_bytes), ", ", report::decimal_text(seconds, 1), " s, ",
                    report::decimal_text(megabytes / seconds, 1), " MB/s\n");
  }
  if (!made.left_out.empty()) text += made.left_out.text() + "\n";
  if (made.replaced_bytes > 0)
    text += message("U+FFFD    ", report::count_text(made.replaced_bytes),
                    " bytes are not Unicode text and were read as it\n");
  print_text(stdout, text);
  return 0;
}

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

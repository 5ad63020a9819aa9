// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"

#include <chrono>
#include <cstdio>
#include <string>

#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/launch/signals.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/generate/model_tokenizer.hpp>
#include <tessera/trainer/report/byte_progress.hpp>
#include <tessera/trainer/report/report.hpp>

namespace fsdp::cli {

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

}  // namespace fsdp::cli

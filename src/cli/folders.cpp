// SPDX-License-Identifier: Apache-2.0
#include "cli/folders.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <comm/self.hpp>
#include <comm/signals.hpp>
#include <fsdp/checkpoint/export.hpp>
#include <fsdp/checkpoint/folder.hpp>
#include <fsdp/checkpoint/inspect.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/models/llama.hpp>
#include <fsdp/report/byte_progress.hpp>
#include <fsdp/report/report.hpp>

namespace fsdp::cli {
namespace {

/// Any stack's Llama: used only to list the parameters of a config.
using Listed = Llama<Stack<Replicated, comm::Self<>, Fp32, tiling::Untiled>>;
const checkpoint::ReadListing read_listed = checkpoint::read_listing<Listed>;

void warn(const std::string& text) { std::fprintf(stderr, "tessera: warning: %s\n", text.c_str()); }

/// Thrown between two pieces of an export to end it.
struct Stopped {
  int signal;
};

/// Lists the regular files of a folder with their sizes.
std::string files_in(const std::filesystem::path& folder) {
  std::map<std::string, std::uintmax_t> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::error_code gone;
    if (entry.is_regular_file(gone)) files[entry.path().filename().string()] = entry.file_size(gone);
  }
  std::string text;
  for (const auto& [name, bytes] : files)
    text += message("file      ", name, ", ", report::bytes_text(static_cast<std::int64_t>(bytes)), "\n");
  return text;
}

std::string model_text(const LlamaConfig& config) {
  std::string text = message("model     ", config.family, ": ");
  for (const ConfigValue& value : values_of(config)) {
    const auto* const number = std::get_if<std::int64_t>(&value.value);
    if (number != nullptr && *number != 0) text += message(value.name, " ", *number, ", ");
  }
  return message(text, config.tied ? "tied" : "untied", " head, RoPE ", config.rope.type, "\n");
}

/// Describes the memory for training with AdamW, sharded over ranks.
std::string needs_text(const std::string& folder, std::int64_t parameters) {
  constexpr std::int64_t bytes = 4 * 4;  // main weight, gradient, two moments
  std::string text = message("training  ", report::bytes_text(bytes * parameters),
                             " of weights, gradients and AdamW's moments in float32");
  for (const int ranks : {2, 4, 8})
    text += message(ranks == 2 ? ": " : ", ", report::bytes_text(bytes * ((parameters + ranks - 1) / ranks)),
                    " on each of ", ranks);
  return message(text,
                 " ranks with fsdp2 or zero3\n          activations and gathered weights come on top, to the byte: ",
                 "tessera train --model ", folder, " --dry-run --ranks N\n");
}

std::string weights_text(const checkpoint::WeightFiles& weights) {
  std::map<std::string, std::int64_t> elements;
  for (const checkpoint::TensorInfo* const tensor : weights.tensors()) elements[tensor->dtype] += tensor->elements;
  std::string text = message("weights   ", weights.tensors().size(), " tensors in ", weights.files().size(),
                             weights.files().size() == 1 ? " file" : " files");
  for (const auto& [dtype, count] : elements) text += message(", ", count, " elements of ", dtype);
  return text + "\n";
}

/// Inspects a folder part by part, so that a problem in one part does not hide those in the next. Skips the parts that
/// need damaged files.
class Inspection {
 public:
  explicit Inspection(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Prints everything about a folder. Returns the exit status.
  int run() {
    print(message("folder    ", folder_.string(), "\n", files_in(folder_)));
    std::optional<LlamaConfig> config;
    part([&] { config = LlamaConfig::read(folder_); });
    if (config) {
      print(model_text(*config));
      const std::int64_t parameters = parameter_count(Listed(*config));
      print(message("          ", parameters, " parameters\n", needs_text(folder_.string(), parameters)));
    }
    std::error_code error;
    if (part([&] { look_at_bytes(); })) {
      part([&] { look_at_weights(config); });
      if (config && std::filesystem::exists(folder_ / "trainer.json", error)) part([&] { print(trained_text()); });
    }
    if (problems_ == 0) print("problems  none\n");
    return status();
  }

  /// Prints a line about one of several checkpoints, and its problems. Returns the exit status.
  int run_as_one_of_many() {
    print(message("step      ", folder_.string(), "\n"));
    if (part([&] { look_at_bytes(); })) part([&] { print(trained_text()); });
    return status();
  }

 private:
  static void print(const std::string& text) { std::fputs(text.c_str(), stdout); }

  int status() const { return problems_ == 0 ? 0 : 2; }

  void problem(const std::string& text) {
    ++problems_;
    print(message("problem   ", text, "\n"));
  }

  /// Calls `look`, which reports problems or throws. Returns whether it found none.
  template <class Part>
  bool part(const Part& look) {
    const int before = problems_;
    try {
      look();
    } catch (const std::exception& error) {
      problem(error.what());
    }
    return problems_ == before;
  }

  void look_at_bytes() {
    std::vector<std::string> damage;
    {
      report::ByteProgress progress("reading");
      damage = checkpoint::damage_in(folder_, [&](std::int64_t done, std::int64_t all) { progress.show(done, all); });
    }
    for (const std::string& text : damage) problem(text);
  }

  void look_at_weights(const std::optional<LlamaConfig>& config) {
    if (!checkpoint::holds_weights(folder_)) return print("weights   none: a run starts from random ones\n");
    print(weights_text(checkpoint::WeightFiles::open(folder_, warn)));
    if (config) checkpoint::open_model(folder_, read_listed, warn);
  }

  std::string trained_text() const {
    const auto saved = checkpoint::Checkpoint::open(folder_, read_listed, warn);
    return message("trained   ", saved.state().step, " steps, ", saved.state().tokens, " tokens\n");
  }

  std::filesystem::path folder_;
  int problems_ = 0;
};

int list_steps(const std::string& folder) {
  const auto steps = checkpoint::steps_in(folder, warn);
  int status = 0;
  std::printf("folder    %s, %zu checkpoint%s\n", folder.c_str(), steps.size(), steps.size() == 1 ? "" : "s");
  for (const std::filesystem::path& step : steps)
    if (Inspection(step).run_as_one_of_many() != 0) status = 2;
  std::printf("%s          tessera inspect %s tells of its model and what it takes to train\n",
              status == 0 ? "problems  none\n" : "", steps.front().c_str());
  return status;
}

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

int run_inspect(const Inspect& command) {
  std::error_code error;
  require<InputError>(std::filesystem::is_directory(command.folder, error), command.folder, ": no such folder");
  const bool model = std::filesystem::exists(std::filesystem::path(command.folder) / "config.json", error);
  if (!model && checkpoint::holds_any(command.folder)) return list_steps(command.folder);
  return Inspection(command.folder).run();
}

}  // namespace fsdp::cli

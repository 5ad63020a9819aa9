// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/checkpoint/inspect.hpp>
#include <tessera/fsdp/checkpoint/weight_files.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/model_files/model_files.hpp>
#include <tessera/fsdp/models/model.hpp>
#include <tessera/text/chat.hpp>
#include <tessera/text/tokenizer_config.hpp>
#include <tessera/trainer/generate/model_folder.hpp>
#include <tessera/trainer/report/console.hpp>
#include <tessera/trainer/report/report.hpp>

#include "../../fsdp/core/paths.hpp"
#include "commands.hpp"
#include "listed.hpp"

namespace fsdp::cli {
namespace {

const checkpoint::ReadModelListing read_listed = checkpoint::read_listing<Listed>;

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

/// Describes the memory for training with AdamW, divided over ranks.
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

/// Describes the formats of optimizer states.
std::string states_text(const checkpoint::SafetensorsFile& file) {
  std::map<std::string, std::int64_t> bytes;
  for (const checkpoint::TensorInfo& tensor : file.tensors()) {
    const std::string codec = checkpoint::codec_of(file, tensor);
    bytes[codec.empty() ? tensor.dtype : codec] += tensor.bytes;
  }
  std::string text = message("states    ", file.tensors().size(), " tensors");
  for (const auto& [codec, count] : bytes) text += message(", ", report::bytes_text(count), " of ", codec);
  return text + "\n";
}

/// Inspects a folder part by part: a problem hides none of the next part, unless that needs the damaged files.
class Inspection {
 public:
  Inspection(std::filesystem::path folder, bool quick) : folder_(std::move(folder)), quick_(quick) {}

  /// Prints all information about a model's folder, or about a folder of adapters. Returns the exit status.
  int run() {
    print(message("folder    ", folder_.string(), "\n", files_in(folder_)));
    if (!holds("config.json") && holds(checkpoint::adapter_config_name))
      part([&] { look_at_adapters(); });
    else
      look_at_model();
    if (quick_) print("values    not read, since --quick\n");
    if (problems_.empty()) print("problems  none\n");
    return status();
  }

  /// Prints one line about one of several checkpoints, and its problems. Returns the exit status.
  int run_as_one_of_many() {
    print(message("step      ", folder_.string(), "\n"));
    if (!part([&] { look_at_bytes(); })) return status();
    part([&] { print(trained_text()); });
    part([&] { look_at_values(checkpoint::WeightFiles::open(folder_, print_warning).files()); });
    part([&] { look_at_states(); });
    return status();
  }

 private:
  static void print(const std::string& text) { print_text(stdout, text); }

  int status() const { return problems_.empty() ? 0 : 2; }

  bool holds(const char* name) const { return path_exists(folder_ / name); }

  /// Prints a problem, unless another part found the same one.
  void problem(const std::string& text) {
    if (!std::ranges::count(problems_, text)) print(message("problem   ", text, "\n"));
    problems_.push_back(text);
  }

  /// Calls `look`, which reports problems or throws. Returns whether there were no problems.
  template <class Part>
  bool part(const Part& look) {
    const std::size_t before = problems_.size();
    try {
      look();
    } catch (const std::exception& error) {
      problem(error.what());
    }
    return problems_.size() == before;
  }

  void look_at_model() {
    std::optional<LlamaConfig> config;
    part([&] { config = LlamaConfig::read(folder_); });
    if (config) {
      print(model_text(*config));
      const std::int64_t parameters = parameter_count(Listed(*config));
      print(message("          ", parameters, " parameters\n", needs_text(folder_.string(), parameters)));
    }
    if (part([&] { look_at_bytes(); })) {
      look_at_weights(config);
      if (config && holds("trainer.json")) {
        part([&] { print(trained_text()); });
        part([&] { print(states_text(checkpoint::SafetensorsFile(folder_ / "optimizer.safetensors"))); });
        part([&] { look_at_states(); });
      }
    }
    part([&] { look_at_tokenizer(config); });
    if (part([&] { (void)checkpoint::read_side_files(folder_); })) part([&] { look_at_sampling(); });
  }

  void look_at_adapters() {
    const LoraConfig lora = LoraConfig::read(folder_);
    print(message("adapters  rank ", lora.rank, ", alpha ", lora.alpha, ", for ", lora.targets, "\n"));
    const checkpoint::SafetensorsFile file = checkpoint::open_adapter_weights(folder_);
    part([&] { checkpoint::check_adapters(file, lora); });
    look_at_values(std::span(&file, 1));
  }

  /// Reports the problems that `find(show)` returns, unless --quick is given. `show` shows its progress.
  template <class Find>
  void look(const char* activity, const Find& find) {
    if (quick_) return;
    std::vector<std::string> found;
    {
      report::ByteProgress progress(activity);
      found = find([&](std::int64_t done, std::int64_t all) { progress.show(done, all); });
    }
    for (const std::string& text : found) problem(text);
  }

  /// Compares all files of a checkpoint with its manifest.
  void look_at_bytes() {
    look("reading", [&](const auto& show) { return checkpoint::damaged_files(folder_, show); });
  }
  void look_at_weights(const std::optional<LlamaConfig>& config) {
    std::optional<checkpoint::WeightFiles> weights;
    part([&] {
      if (checkpoint::holds_weights(folder_))
        weights = checkpoint::WeightFiles::open(folder_, config ? checkpoint::Warn() : print_warning);
      else if (holds("config.json"))
        print("weights   none: a run starts from random ones\n");
    });
    if (!weights) return;
    print(weights_text(*weights));
    checkpoint::ModelListing listing;
    if (config) part([&] { listing = checkpoint::open_model(folder_, read_listed, print_warning).listing; });
    part([&] {
      // Also checks ignored copies, which must equal a checked tensor
      look_at_values(weights->files(), [&](const std::string& name) {
        return listing.ignored && listing.ignored(name) && !(listing.copied && listing.copied(name));
      });
    });
  }

  /// Searches for values that are not finite.
  void look_at_values(std::span<const checkpoint::SafetensorsFile> files,
                      const std::function<bool(const std::string&)>& ignored = {}) {
    look("reading values", [&](const auto& show) { return checkpoint::not_finite_in(files, show, ignored); });
  }
  void look_at_states() {
    const checkpoint::SafetensorsFile file(folder_ / "optimizer.safetensors");
    look_at_values(std::span(&file, 1));
  }

  void look_at_tokenizer(const std::optional<LlamaConfig>& config) {
    const std::optional<std::filesystem::path> file = text::find_tokenizer(folder_);
    if (!file) {
      for (const char* const name : {"tokenizer.model", "tekken.json", "vocab.json", "merges.txt", "qwen.tiktoken"})
        require<InputError>(!holds(name), folder_.string(), ": holds ", name,
                            " but no tokenizer.json, which is read; save it with the fast tokenizer of transformers, ",
                            "or name another by --tokenizer");
      return print("tokenizer none: text takes --tokenizer, or is read as bytes if the vocabulary is small\n");
    }
    const text::Tokenizer tokenizer = text::Tokenizer::read(*file);
    const std::optional<text::NamedText> chat = text::chat_template_beside(*file);
    print(message("tokenizer ", tokenizer.vocabulary_size(), " tokens, ", chat ? "with a" : "no", " chat template\n"));
    const std::size_t rows = config ? tokenizer.ids_without_token(config->vocab_size).size() : 0;
    if (rows > 0)
      print(message("          ", rows, rows == 1 ? " row" : " rows", " of the vocabulary without a token\n"));
    train::warn_of(tokenizer);
    if (config) train::require_vocabulary(tokenizer, *file, config->vocab_size);
    if (chat) (void)text::ChatFormat(*file, "auto", text::training_clock());
  }

  void look_at_sampling() {
    train::GenerateOptions options{.model = folder_.string()};
    train::FlagSet flags;
    bind(flags, options);
    const std::string said = train::apply_generation_config(flags, options);
    if (!said.empty()) print(message("sampling  ", said, ", by generation_config.json\n"));
  }

  std::string trained_text() const {
    const auto saved = checkpoint::Checkpoint::open(folder_, read_listed, print_warning);
    return message("trained   ", saved.state().step, " steps, ", saved.state().tokens, " tokens\n");
  }

  std::filesystem::path folder_;
  bool quick_;
  std::vector<std::string> problems_;
};

int list_steps(const std::string& folder, bool quick) {
  const auto steps = checkpoint::steps_in(folder, print_warning);
  int status = 0;
  print_text(stdout,
             message("folder    ", folder, ", ", steps.size(), " checkpoint", steps.size() == 1 ? "\n" : "s\n"));
  for (const std::filesystem::path& step : steps)
    if (Inspection(step, quick).run_as_one_of_many() != 0) status = 2;
  print_text(stdout, message(status == 0 ? "problems  none\n" : "", "          tessera inspect ",
                             steps.front().string(), " tells of its model and what it takes to train\n"));
  return status;
}

}  // namespace

int run(const Inspect& command) {
  const std::filesystem::path folder = command.folder;
  require_folder(folder);
  const int status = !path_exists(folder / "config.json") && checkpoint::holds_any(command.folder)
                         ? list_steps(command.folder, command.quick)
                         : Inspection(folder, command.quick).run();
  if (status != 0) print_sentence(message("inspect: ", command.folder, " has problems; stdout lists them"));
  return status;
}

}  // namespace fsdp::cli

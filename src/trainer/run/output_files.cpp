// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/output_files.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <tessera/fsdp/checkpoint/directory_lock.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/data/data_inputs.hpp>

#include "../../fsdp/checkpoint/step_folders.hpp"
#include "../../fsdp/core/paths.hpp"

namespace fsdp::train {
namespace {

namespace fs = std::filesystem;

/// Returns a path without links and dots.
fs::path whole(const fs::path& path) {
  std::error_code error;
  return fs::weakly_canonical(fs::absolute(path, error), error);
}

/// Returns whether a path is `folder` or is inside it, after resolving links and dots.
bool is_in(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  if (fs::equivalent(path, folder, error)) return true;
  fs::path outer = whole(folder);
  if (!outer.has_filename()) outer = outer.parent_path();  // the path ended in a slash
  const fs::path inner = whole(path);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

/// Returns whether two paths refer to the same file, which need not exist yet.
bool same(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return whole(a) == whole(b) || fs::equivalent(a, b, error);
}

/// Returns whether a file has the name of a file that models, tokenizers and checkpoints read.
bool is_of_a_model(const fs::path& path) {
  constexpr std::array<std::string_view, 12> names = {"config.json",
                                                      "generation_config.json",
                                                      "model.safetensors.index.json",
                                                      "adapter_config.json",
                                                      "tokenizer.json",
                                                      "tokenizer_config.json",
                                                      "special_tokens_map.json",
                                                      "chat_template.jinja",
                                                      "added_tokens.json",
                                                      "trainer.json",
                                                      "manifest.json",
                                                      "tokens.json"};
  const std::string name = path.filename().string();
  return path.extension() == ".safetensors" || std::ranges::find(names, name) != names.end();
}

void refuse_if(bool is, const char* flag, const std::string& file, const std::string& what) {
  require<InputError>(!is, flag, " ", file, " is ", what, "; give it a file of its own");
}

/// Throws InputError if `file`, an output file of `flag`, is an input file of the run.
void require_unread_by_run(const char* flag, const std::string& file, const TrainOptions& options,
                           std::span<const ReadFile> read) {
  const auto refuse = [&](bool is, const std::string& what) { refuse_if(is, flag, file, what); };
  require_unread(flag, file, read);
  for (const std::string& path : data::parse_data(options.data).paths) {
    refuse(same(file, path), "a file of --data");
    refuse(path_exists(file) && folder_exists(path) && is_in(file, path), "in the folder of --data " + path);
  }
  const std::array<std::pair<const char*, std::string>, 6> named = {{{"--cluster", options.cluster.value_or("")},
                                                                     {"--model", options.model.name},
                                                                     {"--adapter", options.model.adapter},
                                                                     {"--tokenizer", options.text.tokenizer},
                                                                     {"--chat-template", options.text.chat_template},
                                                                     {"--resume", options.resume.value_or("")}}};
  for (const auto& [of, path] : named) {
    if (path.empty() || !path_exists(path) || !path_exists(file)) continue;
    refuse(same(file, path), message("the file of ", of));
    refuse(folder_exists(path) && is_in(file, path) && is_of_a_model(file), message("a file of ", of, " ", path));
  }
}

}  // namespace

std::vector<ReadFile> files_of(const FlagSet& flags) {
  std::vector<ReadFile> files;
  for (const std::string& path : flags.files()) files.push_back({.flag = "--config", .path = path});
  return files;
}

void require_unread(const char* flag, const std::string& file, std::span<const ReadFile> read) {
  for (const ReadFile& each : read) refuse_if(same(file, each.path), flag, file, "the file of " + each.flag);
}

void require_apart(const TrainOptions& options, std::span<const ReadFile> read) {
  std::error_code error;
  using Written = std::pair<const char*, const std::optional<std::string>*>;
  const std::array<Written, 3> written = {
      {{"--metrics", &options.metrics}, {"--digests", &options.digests}, {"--trace", &options.trace}}};
  const auto is_file = [&](const std::string& path) {
    return !path_exists(path) || std::filesystem::is_regular_file(path, error);
  };
  for (const auto& [flag, file] : written) {
    if (!*file || !is_file(**file)) continue;
    require_unread_by_run(flag, **file, options, read);
    if (!options.checkpoint_dir) continue;
    for (const std::string_view name : {checkpoint::lock_name, checkpoint::latest_name})
      require<InputError>(!same(**file, std::filesystem::path(*options.checkpoint_dir) / name), flag, " ", **file,
                          " is a file of --checkpoint-dir; give it a file of its own");
  }
  for (const auto& [flag, file] : written)
    for (const auto& [other_flag, other] : written)
      require<InputError>(flag == other_flag || !*file || !*other || !same(**file, **other) || !is_file(**file), flag,
                          " and ", other_flag, " both write ", file->value_or(""), "; give each a file of its own");
}

void require_apart(const ReplayRequest& r, const TrainOptions& options) {
  const auto check = [&](const char* flag, const std::optional<std::string>& path) {
    if (!path) return;
    const auto refuse = [&](const std::string& folder, const std::string& what) {
      require<InputError>(folder.empty() || !is_in(*path, folder), flag, " ", *path, " is ", what,
                          ", which replay leaves as it is; give a path elsewhere");
    };
    refuse(r.folder, "in the run's folder, " + r.folder);
    for (const std::string& data : data::parse_data(options.data).paths) refuse(data, "in the run's data, " + data);
    refuse(options.text.tokenizer, "in the run's tokenizer, " + options.text.tokenizer);
    refuse(r.against.value_or(""), "in what --against names");
  };
  check("--digests", r.digests);
  check("--tensors", r.tensors);
  require<InputError>(!r.digests || !r.tensors || !is_in(*r.digests, *r.tensors), "--digests ", r.digests.value_or(""),
                      " is in the folder of --tensors, which has a file of digests anyway; leave one out");
}

}  // namespace fsdp::train

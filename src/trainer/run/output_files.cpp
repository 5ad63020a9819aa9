// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/output_files.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/data/data_inputs.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>

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

/// The names of files that models, tokenizers and checkpoints read, besides *.safetensors.
const std::set<std::string, std::less<>> model_files = {"config.json",
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

void refuse_if(bool is, const char* flag, const std::string& file, const std::string& what) {
  require<InputError>(!is, flag, " ", file, " is ", what, "; give it a file of its own");
}

/// Throws InputError if `file`, an output file of `flag`, is an input file of the run.
void require_unread_by_run(const char* flag, const std::string& file, const TrainOptions& options,
                           std::span<const std::string> configs) {
  const auto refuse = [&](bool is, const std::string& what) { refuse_if(is, flag, file, what); };
  require_unread(flag, file, configs);
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
    const bool of_a_model =
        fs::path(file).extension() == ".safetensors" || model_files.contains(fs::path(file).filename().string());
    refuse(folder_exists(path) && is_in(file, path) && of_a_model, message("a file of ", of, " ", path));
  }
}

constexpr const char* flag_prefix = "--checkpoint-dir ";

/// Throws InputError if a run that does not resume would write among the steps of another run, or if a step's name
/// belongs to something other than a folder: a checkpoint could not replace it.
void require_unused(const TrainOptions& options) {
  const std::string& dir = *options.checkpoint_dir;
  std::filesystem::path newest;
  std::int64_t step = -1;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    const std::int64_t its = checkpoint::step_of(entry.path().filename().string());
    require<InputError>(its < 0 || entry.is_directory(error), "--checkpoint-dir ", dir, ": ", entry.path().string(),
                        " has a checkpoint's name and is no folder; move it elsewhere, or give another folder");
    if (its > step) step = its, newest = entry.path();
  }
  require<InputError>(options.resume || step < 0, "--checkpoint-dir ", dir,
                      ": holds checkpoints of another run, up to ", newest.string(),
                      "; go on with that run by --resume auto, or give this one a folder of its own");
}

}  // namespace

void require_unread(const char* flag, const std::string& file, std::span<const std::string> configs) {
  for (const std::string& config : configs) refuse_if(same(file, config), flag, file, "the file of --config");
}

void require_apart(const TrainOptions& options, std::span<const std::string> configs) {
  std::error_code error;
  using Written = std::pair<const char*, const std::optional<std::string>*>;
  const std::array<Written, 3> written = {
      {{"--metrics", &options.metrics}, {"--digests", &options.digests}, {"--trace", &options.trace}}};
  const auto is_file = [&](const std::string& path) {
    return !path_exists(path) || std::filesystem::is_regular_file(path, error);
  };
  for (const auto& [flag, file] : written) {
    if (!*file || !is_file(**file)) continue;
    require_unread_by_run(flag, **file, options, configs);
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

CheckpointDir::CheckpointDir(const comm::Ranks& ranks, const TrainOptions& options) {
  if (options.metrics || options.digests || options.trace)
    read_together(ranks, options.launch.disk_deadline_seconds, "--metrics", [&] {
      if (ranks.rank() == 0) require_apart(options);
    });
  if (!options.checkpoint_dir) return;
  const std::string& dir = *options.checkpoint_dir;
  with_disk_deadline(ranks, options.launch.disk_deadline_seconds,
                     message("locking --checkpoint-dir ", dir, " (--disk-deadline)"), [&] {
                       comm::together(ranks, "--checkpoint-dir", [&] {
                         if (ranks.rank() != 0) return;
                         require_writable(dir);
                         prefixed(flag_prefix, [&] { lock_.emplace(dir, print_warning); });
                         require_unused(options);
                       });
                     });
}

void CheckpointDir::require_shared(const comm::Ranks& ranks, const TrainOptions& options) const {
  if (!options.checkpoint_dir) return;
  const std::string& dir = *options.checkpoint_dir;
  const std::string text = comm::gather_texts(ranks, lock_ ? lock_->text() : "", "--checkpoint-dir").front();
  read_together(ranks, options.launch.disk_deadline_seconds, "--checkpoint-dir",
                [&] { prefixed(flag_prefix, [&] { checkpoint::require_lock_seen(dir, text); }); });
}

void CheckpointDir::require_held() const {
  if (lock_) prefixed(flag_prefix, [&] { lock_->require_held(); });
}

void require_writable(const std::string& checkpoint_dir) {
  std::error_code error;
  std::filesystem::path there = std::filesystem::absolute(checkpoint_dir, error);
  require<InputError>(!std::filesystem::is_symlink(there, error) || path_exists(there), "--checkpoint-dir ",
                      checkpoint_dir, ": is a symbolic link to ", std::filesystem::read_symlink(there, error).string(),
                      ", which does not exist; make that folder, or give another");
  while (!path_exists(there) && there.has_relative_path()) there = there.parent_path();
  int number = folder_exists(there) ? 0 : ENOTDIR;
  if (number == 0 && ::access(there.c_str(), W_OK | X_OK) != 0) number = errno;
  require<InputError>(number == 0, "--checkpoint-dir ", checkpoint_dir, ": cannot be written: ", there.string(), ": ",
                      std::strerror(number));
}

void require_room(const TrainOptions& options, const checkpoint::Listing& model,
                  const checkpoint::OptimizerStates& states, const checkpoint::Warn& warn) {
  std::int64_t saved = options.checkpoint_every > 0 ? ceil_divide(options.steps, options.checkpoint_every) : 1;
  if (options.keep > 0) saved = std::min(saved, options.keep + 1);  // the oldest is removed after the newest is saved
  const auto with_flags = [&](const std::string& text) {
    if (warn) warn(message("--checkpoint-dir ", text, "; --keep N keeps the newest N"));
  };
  prefixed(flag_prefix, [&] { checkpoint::require_room(*options.checkpoint_dir, model, states, saved, with_flags); });
}

}  // namespace fsdp::train

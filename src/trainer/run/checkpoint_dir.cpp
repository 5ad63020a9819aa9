// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/checkpoint_dir.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/run/output_files.hpp>
#include <tessera/trainer/run/resumed.hpp>

#include "../../fsdp/checkpoint/step_folders.hpp"
#include "../../fsdp/core/paths.hpp"
#include "../../fsdp/core/prefixed.hpp"

namespace fsdp::train {
namespace {

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

std::string resumed_identity(const TrainOptions& options, const checkpoint::Checkpoint& from,
                             const std::string& otherwise) {
  std::string identity = value_of(from.state().run, checkpoint::run_identity);
  if (options.checkpoint_dir)
    for (const checkpoint::StepFolder& step : checkpoint::step_folders_in(*options.checkpoint_dir)) {
      if (identity.empty()) identity = step.run;
      require<InputError>(step.run.empty() || step.run == identity, "--checkpoint-dir ", *options.checkpoint_dir, ": ",
                          step.path.string(), " is a checkpoint of another run than ", from.path().string(),
                          ", which --resume takes; give each run a folder of its own");
    }
  return identity.empty() ? otherwise : identity;
}

std::string later_steps(const TrainOptions& options, const checkpoint::Checkpoint& from) {
  if (!options.checkpoint_dir || *options.resume != from.path().string()) return {};
  const std::vector<checkpoint::StepFolder> steps = checkpoint::step_folders_in(*options.checkpoint_dir);
  if (steps.empty() || steps.front().step <= from.state().step) return {};
  return message("resumed: ", *options.checkpoint_dir, " keeps its later steps, up to ", steps.front().step,
                 ", which --resume auto would take");
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

std::optional<std::filesystem::path> folder_to_resume(const TrainOptions& options, const checkpoint::ReadListing& read,
                                                      const checkpoint::Warn& warn) {
  if (!options.resume) return std::nullopt;
  if (*options.resume != "auto") return *options.resume;
  const std::string& dir = *options.checkpoint_dir;
  const std::optional<std::filesystem::path> newest = checkpoint::find_latest(dir, read, warn);
  require<InputError>(newest.has_value() || !checkpoint::holds_any(dir), "--resume auto: ", dir,
                      " holds checkpoints and none is complete; mend one, or start in another "
                      "folder");
  return newest;
}

void remove_older(const TrainOptions& options, std::int64_t newest, std::span<const std::filesystem::path> spared,
                  const checkpoint::Warn& warn) {
  if (options.keep == 0) return;
  try {
    checkpoint::remove_older(*options.checkpoint_dir, newest, options.keep, spared);
  } catch (const InputError& error) {
    warn(error.what());
  }
}

}  // namespace fsdp::train

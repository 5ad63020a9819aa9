// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/checkpoint_dir.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <fsdp/core/checked.hpp>
#include <fsdp/core/error.hpp>

namespace fsdp::train {

void require_writable(const std::string& checkpoint_dir) {
  if (checkpoint_dir.empty()) return;
  std::error_code error;
  std::filesystem::path there = std::filesystem::absolute(checkpoint_dir, error);
  while (!std::filesystem::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  int number = std::filesystem::is_directory(there, error) ? 0 : ENOTDIR;
  if (number == 0 && ::access(there.c_str(), W_OK | X_OK) != 0) number = errno;
  require<InputError>(number == 0, "--checkpoint-dir ", checkpoint_dir, ": cannot be written: ", there.string(), ": ",
                      std::strerror(number));
}

void require_room(const TrainOptions& options, const checkpoint::ModelListing& model,
                  const checkpoint::OptimizerStates& states, const checkpoint::Warn& warn) {
  std::int64_t saved = options.checkpoint_every > 0 ? ceil_divide(options.steps, options.checkpoint_every) : 1;
  if (options.keep > 0) saved = std::min(saved, options.keep + 1);  // the oldest is removed after the newest is saved
  checkpoint::require_room(options.checkpoint_dir, model, states, saved, warn);
}

std::optional<std::filesystem::path> folder_to_resume(const TrainOptions& options, const checkpoint::ReadListing& read,
                                                      const checkpoint::Warn& warn) {
  if (options.resume.empty()) return std::nullopt;
  if (options.resume != "auto") return options.resume;
  const std::optional<std::filesystem::path> newest = checkpoint::find_latest(options.checkpoint_dir, read, warn);
  require<InputError>(newest.has_value() || !checkpoint::holds_any(options.checkpoint_dir),
                      "--resume auto: ", options.checkpoint_dir,
                      " holds checkpoints and none is complete; mend one, or start in another "
                      "folder");
  return newest;
}

void remove_older(const TrainOptions& options, std::int64_t newest, std::span<const std::filesystem::path> spared,
                  const checkpoint::Warn& warn) {
  if (options.keep == 0) return;
  try {
    checkpoint::remove_older(options.checkpoint_dir, newest, options.keep, spared);
  } catch (const InputError& error) {
    warn(error.what());
  }
}

}  // namespace fsdp::train

// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the trainer asks of --checkpoint-dir and --resume that does not depend on the stack.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include <fsdp/checkpoint/folder.hpp>
#include <fsdp/train/options.hpp>

namespace fsdp::train {

/// Throws InputError where --checkpoint-dir could not be created or written to: a run should not learn it at its end.
void require_writable(const std::string& checkpoint_dir);

/// Throws InputError where the disk has no room for a checkpoint of the run; warns where not all that it would keep
/// fit.
void require_room(const TrainOptions& options, const checkpoint::ModelListing& model,
                  const checkpoint::OptimizerStates& states, const checkpoint::Warn& warn);

/// What --resume says: a folder, or for "auto" the newest sound one in --checkpoint-dir. Nothing where it is not
/// given and, for "auto", where that directory holds no checkpoint. Where it holds some and none is sound, that is
/// an InputError: a run that starts again would be mistaken for one that goes on.
std::optional<std::filesystem::path> folder_to_resume(const TrainOptions& options, const checkpoint::ReadListing& read,
                                                      const checkpoint::Warn& warn);

/// Rank 0, after step `newest` was saved: leaves --keep checkpoints, and those that are spared. Warns where one cannot
/// be removed.
void remove_older(const TrainOptions& options, std::int64_t newest, std::span<const std::filesystem::path> spared,
                  const checkpoint::Warn& warn);

}  // namespace fsdp::train

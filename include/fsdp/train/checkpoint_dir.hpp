// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks and chooses folders for --checkpoint-dir and --resume. Independent of the stack.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include <fsdp/checkpoint/folder.hpp>
#include <fsdp/train/options.hpp>

namespace fsdp::train {

/// Throws InputError if --checkpoint-dir cannot be created or written. Checked at the start, so that a run does not
/// fail at its first save.
void require_writable(const std::string& checkpoint_dir);

/// Throws InputError if the disk has no room for one checkpoint of the run. Warns if it cannot hold all checkpoints
/// that the run will keep.
void require_room(const TrainOptions& options, const checkpoint::ModelListing& model,
                  const checkpoint::OptimizerStates& states, const checkpoint::Warn& warn);

/// Returns the folder that --resume names; for "auto" the newest sound checkpoint in --checkpoint-dir. Returns nothing
/// if --resume is not given, or if it is "auto" and the directory has no checkpoints. Throws InputError if the
/// directory has checkpoints but none is sound: silently starting again would look like resuming.
std::optional<std::filesystem::path> folder_to_resume(const TrainOptions& options, const checkpoint::ReadListing& read,
                                                      const checkpoint::Warn& warn);

/// Removes all but the --keep newest checkpoints up to step `newest`; keeps those in `spared`, too. Called by rank 0
/// after step `newest` was saved. Warns if one cannot be removed.
void remove_older(const TrainOptions& options, std::int64_t newest, std::span<const std::filesystem::path> spared,
                  const checkpoint::Warn& warn);

}  // namespace fsdp::train

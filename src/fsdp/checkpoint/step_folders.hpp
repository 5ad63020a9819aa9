// SPDX-License-Identifier: Apache-2.0
/// @file
/// The names that occur in a directory of checkpoints:
/// - step-00001000: a finished checkpoint.
/// - step-00001000.replaced: a finished checkpoint, moved aside for a newer one of the same step, on file systems that
///   cannot exchange two folders.
/// - step-00001000.tmp-ID: a checkpoint that is being written, or was left by a run that was killed.
/// - latest: a file with the name of the newest checkpoint; a hint for users that nothing depends on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace fsdp::checkpoint {

inline constexpr std::string_view latest_name = "latest";

/// Returns the step of a finished checkpoint's folder name, moved aside or not; -1 for any other name.
std::int64_t step_of(std::string_view name);

/// Renames `from` to `to`. A folder that already exists at `to` is moved to `from` or removed. At every moment there is
/// a complete folder at `to` or, if the file system cannot exchange folders, at `to`.replaced.
void rename_over(const std::filesystem::path& from, const std::filesystem::path& to);

/// Removes temporary folders that killed runs left behind, and completes an interrupted replacement. To be called only
/// by the run that writes into the directory. Throws InputError if a checkpoint cannot be renamed back.
void remove_leftovers(const std::filesystem::path& dir);

}  // namespace fsdp::checkpoint

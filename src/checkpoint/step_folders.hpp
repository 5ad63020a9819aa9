// SPDX-License-Identifier: Apache-2.0
/// @file
/// The names in a directory of checkpoints: finished ones, those that are being written, and those that moved aside.
///
/// | name | is |
/// | --- | --- |
/// | step-00001000 | finished |
/// | step-00001000.replaced | finished too: moved aside for a newer one of this step, on file systems that cannot
/// exchange | | step-00001000.tmp-ID | being written, or left by a run that was killed | | latest | the name of the
/// newest; a hint for people, which nothing relies on |
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fsdp/checkpoint/folder.hpp>

namespace fsdp::checkpoint {

/// The step of a finished checkpoint's folder name, moved aside or not; -1 for any other name.
std::int64_t step_of(std::string_view name);

/// Finished checkpoints, newest first; one that was moved aside comes after that of the same step. Warns where `latest`
/// names another than the first. Throws InputError where the directory cannot be listed.
std::vector<std::filesystem::path> finished(const std::filesystem::path& dir, const Warn& warn = {});

/// Puts `from` in the place of `to`. A folder that is already there ends up at `from` or is removed. At every moment a
/// whole folder stands at `to` or, where the file system cannot exchange, at `to`.replaced.
void rename_over(const std::filesystem::path& from, const std::filesystem::path& to);

/// Removes what runs that were killed while they saved have left, and ends a replacement that was cut short. For the
/// one run that writes into the directory. Throws InputError where a checkpoint cannot get its name back.
void tidy(const std::filesystem::path& dir);

}  // namespace fsdp::checkpoint

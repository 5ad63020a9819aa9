// SPDX-License-Identifier: Apache-2.0
/// @file
/// Inspects checkpoints without a model: lists the steps in a directory, and verifies their checksums.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <fsdp/checkpoint/weight_files.hpp>

namespace fsdp::checkpoint {

/// Returns the folders of finished checkpoints in a directory, newest first, sound or not. Throws InputError if it
/// cannot be listed.
std::vector<std::filesystem::path> steps_in(const std::filesystem::path& dir, const Warn& warn = {});

/// Called after each piece with the bytes read so far and their total.
using ReadProgress = std::function<void(std::int64_t done, std::int64_t all)>;

/// Reads all files that a folder's manifest.json lists and compares their checksums. Returns a sentence for each file
/// that differs from what was written; nothing if all are sound or there is no manifest. Throws InputError for a
/// damaged manifest.
std::vector<std::string> damage_in(const std::filesystem::path& folder, const ReadProgress& progress = {});

}  // namespace fsdp::checkpoint

// SPDX-License-Identifier: Apache-2.0
/// @file
/// What can be told of checkpoints without a model: which steps a directory holds, and whether their bytes are those
/// that were written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <fsdp/checkpoint/weight_files.hpp>

namespace fsdp::checkpoint {

/// The folders of finished checkpoints in a directory, newest first, sound or not. Throws InputError where it cannot be
/// listed.
std::vector<std::filesystem::path> steps_in(const std::filesystem::path& dir, const Warn& warn = {});

/// Called after each piece with the bytes that are read and that there are.
using ReadProgress = std::function<void(std::int64_t done, std::int64_t all)>;

/// Reads every byte of the files that a folder's manifest.json lists. A sentence for each file that is not as it was
/// written; empty where all are, or where there is no manifest. Throws InputError for a damaged manifest.
std::vector<std::string> damage_in(const std::filesystem::path& folder, const ReadProgress& progress = {});

}  // namespace fsdp::checkpoint

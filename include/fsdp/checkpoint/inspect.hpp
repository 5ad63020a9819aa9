// SPDX-License-Identifier: Apache-2.0
/// @file
/// Inspects checkpoints without a model: lists the steps in a directory, verifies their checksums, and looks for values
/// that are not finite.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/checkpoint/weight_files.hpp>

namespace fsdp::checkpoint {

/// Returns the folders of finished checkpoints in a directory, newest first, valid or not; a folder that was moved
/// aside comes after the other folder of its step. Warns if the file `latest` does not contain the name of the first.
/// Throws InputError if the directory cannot be listed.
std::vector<std::filesystem::path> steps_in(const std::filesystem::path& dir, const Warn& warn = {});

/// Returns the name of the codec (optim::StateFormat::text) of a tensor of optimizer.safetensors; empty if it is bytes
/// and the metadata do not name their codec.
std::string codec_of(const SafetensorsFile& file, const TensorInfo& tensor);

/// Called after each piece with the number of bytes read so far and the total.
using ReadProgress = std::function<void(std::int64_t done, std::int64_t all)>;

/// Reads all files that a folder's manifest.json lists and compares their checksums. Returns a message for each file
/// that differs from the written file; an empty list if all are valid or there is no manifest. Throws InputError for a
/// damaged manifest.
std::vector<std::string> damaged_files(const std::filesystem::path& folder, const ReadProgress& progress = {});
/// Its former name, for this version.
inline std::vector<std::string> damage_in(const std::filesystem::path& folder, const ReadProgress& progress = {}) {
  return damaged_files(folder, progress);
}

/// Reads all weights of these files, a piece at a time. Returns a message for each tensor with a value that is
/// infinite, NaN or too large for float, with the position of the first one: for at most 10 tensors, and then a message
/// with the number of the others. Skips tensors whose type is not a weight type, and `ignored` ones. Throws FileError
/// if a file cannot be read.
std::vector<std::string> not_finite_in(std::span<const SafetensorsFile> files, const ReadProgress& progress = {},
                                       const std::function<bool(const std::string&)>& ignored = {});

}  // namespace fsdp::checkpoint

// SPDX-License-Identifier: Apache-2.0
/// @file
/// manifest.json: the last file of a checkpoint to be written, with sizes and checksums of all other files and of
/// itself.
///
/// If it exists, the other files are complete; its checksums show whether they are unchanged.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "file_sums.hpp"

namespace fsdp::checkpoint {

/// The sizes and checksums of a checkpoint's files.
struct Manifest {
  std::map<std::string, FileSums, std::less<>> files;  ///< sizes and checksums by file name

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// The files of a checkpoint.
inline constexpr const char* config_name = "config.json";
inline constexpr const char* model_name = "model.safetensors";
/// Index of shards; checkpoints do not have one.
inline constexpr const char* index_name = "model.safetensors.index.json";
inline constexpr const char* optimizer_name = "optimizer.safetensors";
inline constexpr const char* trainer_name = "trainer.json";
inline constexpr const char* manifest_name = "manifest.json";

/// Returns the text of manifest.json, which ends with its own checksum.
std::string to_json(const Manifest& manifest);

/// Reads a folder's manifest.json; returns nothing if there is none. Throws InputError for anything that to_json does
/// not write.
std::optional<Manifest> read_manifest(const std::filesystem::path& folder);

/// Returns the checksums of a file. Throws InputError if the manifest does not list the file.
const FileSums& sums_in(const Manifest& manifest, const std::filesystem::path& file);

/// Throws InputError unless the manifest lists the file and `content` matches its checksums.
void check_content(const Manifest& manifest, const std::filesystem::path& file, std::string_view content);

}  // namespace fsdp::checkpoint

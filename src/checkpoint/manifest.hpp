// SPDX-License-Identifier: Apache-2.0
/// @file
/// manifest.json: a checkpoint's last file, with the size and the checksums of every other one, and of itself.
///
/// Its presence says that the others are whole, and its checksums that they are those that were written.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "file_sums.hpp"

namespace fsdp::checkpoint {

struct Manifest {
  std::map<std::string, FileSums, std::less<>> files;  ///< by name

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// The files of a checkpoint.
inline constexpr const char* config_name = "config.json";
inline constexpr const char* model_name = "model.safetensors";
inline constexpr const char* index_name = "model.safetensors.index.json";  ///< of shards: never a checkpoint's own
inline constexpr const char* optimizer_name = "optimizer.safetensors";
inline constexpr const char* trainer_name = "trainer.json";
inline constexpr const char* manifest_name = "manifest.json";

/// The text of manifest.json. It ends with its own checksum.
std::string to_json(const Manifest& manifest);

/// A folder's manifest.json; nothing where there is none. Strict: anything that to_json does not write is an
/// InputError.
std::optional<Manifest> read_manifest(const std::filesystem::path& folder);

/// The sums of one of the files. Throws InputError where the manifest does not list it.
const FileSums& sums_in(const Manifest& manifest, const std::filesystem::path& file);

/// Throws InputError unless the manifest lists the file and `content` is what was written.
void check_content(const Manifest& manifest, const std::filesystem::path& file, std::string_view content);

}  // namespace fsdp::checkpoint

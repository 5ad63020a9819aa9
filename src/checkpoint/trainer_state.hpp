// SPDX-License-Identifier: Apache-2.0
/// @file
/// trainer.json: where a run stands.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <fsdp/checkpoint/folder.hpp>

#include "manifest.hpp"

namespace fsdp::checkpoint {

/// trainer.json beside what is needed to trust the other files.
struct TrainerFile {
  TrainerState state;
  std::string sizes_hash;           ///< of all names and shapes
  std::string optimizer = "adamw";  ///< its name; checkpoints from before there were others have none
  bool has_manifest = true;         ///< a manifest.json was written after it; those of format version 1 have none
};

/// FNV-1a over names and shapes, as 16 hexadecimal digits.
std::string hash_of(std::span<const NamedShape> parameters);

std::string to_json(const TrainerFile& file);

/// Checked against the manifest where there is one. Strict: an unknown format version, key or type is an InputError.
TrainerFile read_trainer_file(const std::filesystem::path& path, const std::optional<Manifest>& manifest);

}  // namespace fsdp::checkpoint

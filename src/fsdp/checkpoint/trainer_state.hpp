// SPDX-License-Identifier: Apache-2.0
/// @file
/// trainer.json: the state of a run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <tessera/fsdp/checkpoint/folder.hpp>

#include "manifest.hpp"

namespace fsdp::checkpoint {

/// The contents of trainer.json.
struct TrainerFile {
  TrainerState state;
  std::string sizes_hash;           ///< hash_of the names and shapes of all parameters
  std::string optimizer = "adamw";  ///< name of the optimizer; old checkpoints do not store it
  bool has_manifest = true;         ///< whether a manifest.json was written after this file; false for format version 1

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("sizes_hash", self.sizes_hash);
    if (visitor.has("optimizer", true)) visitor("optimizer", self.optimizer);
    TrainerState::visit(self.state, visitor);
  }
};

/// Returns an FNV-1a hash of names and shapes, as 16 hexadecimal digits.
std::string hash_of(std::span<const NamedShape> parameters);

std::string to_json(const TrainerFile& file);

/// Reads trainer.json and checks it against the manifest if there is one. Throws InputError for an unknown format
/// version, key or type.
TrainerFile read_trainer_file(const std::filesystem::path& path, const std::optional<Manifest>& manifest);

}  // namespace fsdp::checkpoint

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Opens a model's folder whose manifest was read.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include <tessera/fsdp/checkpoint/model_files.hpp>

#include "manifest.hpp"

namespace fsdp::checkpoint {

/// Returns the manifest's checksums of a file; nullptr if there is no manifest. Throws InputError if it does not list
/// the file.
std::shared_ptr<const FileSums> sums_for(const std::optional<Manifest>& manifest, const std::filesystem::path& file);

/// Does what open_model does, and checks everything it reads against the manifest if there is one.
ModelFiles open_verified_model(const std::filesystem::path& folder, const ReadListing& read, const Warn& warn,
                               const std::optional<Manifest>& manifest, const std::filesystem::path& adapter = {});

}  // namespace fsdp::checkpoint

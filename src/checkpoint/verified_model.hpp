// SPDX-License-Identifier: Apache-2.0
/// @file
/// Opening a folder of a model whose manifest is known.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include <fsdp/checkpoint/model_files.hpp>

#include "manifest.hpp"

namespace fsdp::checkpoint {

/// What the manifest tells of a file; nothing where there is none. Throws InputError where it does not list the file.
std::shared_ptr<const FileSums> sums_for(const std::optional<Manifest>& manifest, const std::filesystem::path& file);

/// open_model, with what it reads checked against the manifest where there is one.
ModelFiles open_verified_model(const std::filesystem::path& folder, const ReadListing& read, const Warn& warn,
                               const std::optional<Manifest>& manifest, const std::filesystem::path& adapter = {});

}  // namespace fsdp::checkpoint

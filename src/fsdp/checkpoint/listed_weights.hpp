// SPDX-License-Identifier: Apache-2.0
/// @file
/// The steps that open the weights of a folder. A caller that has read the manifest calls `check_config`, reads the
/// listing, and calls `open_weights`. If there is a manifest, all data are checked against it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include <tessera/fsdp/checkpoint/listing.hpp>

#include "manifest.hpp"

namespace fsdp::checkpoint {

/// Returns the manifest's checksums of a file; nullptr if there is no manifest. Throws InputError if it does not list
/// the file.
std::shared_ptr<const FileSums> sums_for(const std::optional<Manifest>& manifest, const std::filesystem::path& file);

/// Throws InputError unless config.json matches the manifest.
void check_config(const std::filesystem::path& folder, const std::optional<Manifest>& manifest);

/// Opens the weights, and warns about the tensors that the listing ignores. Throws InputError unless the files contain
/// exactly the expected tensors and ignored ones, and for an ignored tensor that must be a copy of another tensor and
/// is not. `expected`: tensors of the listing.
WeightFiles open_weights(const std::filesystem::path& folder, const Listing& listing,
                         std::span<const NamedShape> expected, const Warn& warn,
                         const std::optional<Manifest>& manifest);

/// Throws InputError, which reports the first tensor (with both shapes) that differs between a step and this model.
void require_same_tensors(const std::filesystem::path& step, std::span<const NamedShape> stored,
                          std::span<const NamedShape> wanted);

}  // namespace fsdp::checkpoint

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The steps that open the weights of a folder: whoever has read its manifest calls `check_config`, reads its listing,
/// and calls `open_weights`. Everything that is read is checked against the manifest if there is one.
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

/// Throws InputError unless config.json is what was written.
void check_config(const std::filesystem::path& folder, const std::optional<Manifest>& manifest);

/// Opens the weights, and warns of the tensors that the listing ignores. Throws InputError unless they have the
/// expected tensors and no others that the listing does not ignore, and for an ignored one that must be a copy of
/// another and is not. `expected`: tensors of the listing.
WeightFiles open_weights(const std::filesystem::path& folder, const Listing& listing,
                         std::span<const NamedShape> expected, const Warn& warn,
                         const std::optional<Manifest>& manifest);

/// Throws InputError, which names the first tensor (with both shapes) that is not the same in a step and in this model.
void require_same_tensors(const std::filesystem::path& step, std::span<const NamedShape> stored,
                          std::span<const NamedShape> wanted);

}  // namespace fsdp::checkpoint

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Opens the weights of a folder whose manifest was read. Everything that is read is checked against the manifest if
/// there is one.
///
/// `open_listed` does it all, in the order of the functions below; who opens more of a folder calls them one by one.
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

/// Opens the weights, and throws InputError unless they have these tensors and no others that the listing does not
/// ignore. `expected`: tensors of the listing.
WeightFiles open_weights(const std::filesystem::path& folder, const Listing& listing,
                         std::span<const NamedShape> expected, const Warn& warn,
                         const std::optional<Manifest>& manifest);

/// Throws InputError, which names the first tensor (with both shapes) that is not the same in a step and in this model.
void require_same_tensors(const std::filesystem::path& step, std::span<const NamedShape> stored,
                          std::span<const NamedShape> wanted);

/// Warns if the folder holds adapters beside its weights.
void warn_of_adapters(const std::filesystem::path& folder, const Warn& warn);

/// Warns of the tensors that the listing ignores. Throws InputError for one that must be a copy of another and is not.
void check_ignored(const WeightFiles& weights, const Listing& listing, const Warn& warn);

/// The opened weights of a folder, and what it must have.
struct ListedWeights {
  Listing listing;
  WeightFiles weights;
};

/// Opens a folder that has all tensors of its listing.
ListedWeights open_listed(const std::filesystem::path& folder, const ReadListing& read, const Warn& warn,
                          const std::optional<Manifest>& manifest);

}  // namespace fsdp::checkpoint

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tensors, by name, and the config values that a folder must have.
///
/// Not here: listings of models (tessera/fsdp/model_files/model_files.hpp) and of shards
/// (tessera/fsdp/checkpoint/sharded.hpp).
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/checkpoint/safetensors.hpp>
#include <tessera/fsdp/checkpoint/weight_files.hpp>
#include <tessera/fsdp/core/named_values.hpp>
#include <tessera/fsdp/core/parameter.hpp>

namespace fsdp::checkpoint {

/// The tensors and config values that a folder must have.
struct Listing {
  std::vector<NamedShape> parameters = {};  ///< all parameters, in the order of the units
  std::string config = {};                  ///< the text of config.json
  ConfigValues values = {};                 ///< config values that identify the trained model
  /// Returns the reason why a stored tensor is not used (an empty text needs no warning), or nothing if the tensor is
  /// used.
  std::function<std::optional<std::string>(const std::string&)> ignored = {};
  /// Returns the parameter that an ignored tensor must be a copy of; nothing if it need not be a copy.
  std::function<std::optional<std::string>(const std::string&)> copied = {};
};

/// Makes a listing from parameters and config values. `config`: the text of config.json. `may_change`: returns whether
/// a value may differ between folders of the same model; such values are omitted.
Listing listing_of(std::span<const Parameter> parameters, std::string config, const ConfigValues& values,
                   bool (*may_change)(const std::string& name));

/// Makes the listing of a folder. Throws InputError if it cannot be read.
using ReadListing = std::function<Listing(const std::filesystem::path& folder)>;

/// Throws InputError unless the files contain exactly the expected tensors. The error reports the first tensor whose
/// shape differs, with both shapes; then unknown and missing names (up to 10 of each), and the prefix that explains
/// them if one does.
void check_tensors(const WeightFiles& files, std::span<const NamedShape> expected,
                   const std::function<bool(const std::string&)>& ignored = {});

}  // namespace fsdp::checkpoint

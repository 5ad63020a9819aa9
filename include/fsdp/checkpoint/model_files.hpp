// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's folder: config.json and weights, written by Tessera or any other program.
///
/// Not here: the optimizer and the trainer's position (tessera/fsdp/checkpoint/folder.hpp).
#pragma once

#include <concepts>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/fsdp/checkpoint/adapters.hpp>
#include <tessera/fsdp/checkpoint/weight_files.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/models/config_values.hpp>
#include <tessera/fsdp/models/ignored_tensors.hpp>
#include <tessera/fsdp/models/lora_config.hpp>
#include <tessera/fsdp/models/units_of.hpp>

namespace fsdp::checkpoint {

/// The tensors and config values that a model's folder must have.
struct ModelListing {
  std::vector<NamedShape> parameters = {};  ///< in the order of the model's units
  std::string config = {};                  ///< the text of config.json
  ConfigValues values = {};                 ///< config values that identify the model
  std::optional<LoraConfig> lora = {};      ///< if some parameters are adapters
  /// Returns why a stored tensor is not used (an empty text needs no warning); nothing if it is not ignored.
  std::function<std::optional<std::string>(const std::string&)> ignored = {};
  /// Returns the parameter that an ignored tensor must be a copy of; nothing if it is none.
  std::function<std::optional<std::string>(const std::string&)> copied = {};
};

/// Makes a listing from parameters and config values. `config`: the text of config.json. `may_change`: returns whether
/// a value may differ between folders of the same model; such values are left out.
ModelListing listing_of(std::span<const Parameter> parameters, std::string config, const ConfigValues& values,
                        bool (*may_change)(const std::string& name));

namespace detail {
FSDP_HAS_MEMBER(may_change)
}  // namespace detail

/// Returns the listing of a model.
template <class Model>
ModelListing listing_of(const Model& model) {
  using Config = typename Model::Config;
  const auto may_change = [](const std::string& name) -> bool {
    static_assert(
        !detail::has_may_change<Config>() ||
            requires {
              { Config::may_change(name) } -> std::convertible_to<bool>;
            },
        "fsdp: a model's Config has a may_change that is no static bool may_change(const std::string& name)");
    if constexpr (detail::has_may_change<Config>())
      return Config::may_change(name);
    else
      return false;
  };
  ModelListing listing =
      listing_of(parameter_list(model), model.config().write(), values_of(model.config()), may_change);
  if constexpr (HasAdapters<Config>)
    if (model.config().adapters().on()) listing.lora = model.config().adapters();
  static_assert(check_ignored_tensors<Model>());
  if constexpr (fsdp::detail::has_ignored<Model>())
    listing.ignored = [model](const std::string& name) { return model.ignored(name); };
  if constexpr (fsdp::detail::has_copied<Model>())
    listing.copied = [model](const std::string& name) { return model.copied(name); };
  return listing;
}

/// Makes the listing of a folder's model from its config.json. Throws InputError.
using ReadListing = std::function<ModelListing(const std::filesystem::path& folder)>;

/// Returns the listing of a folder's model.
template <class Model>
ModelListing read_listing(const std::filesystem::path& folder) {
  return listing_of(Model(Model::Config::read(folder), Units{}));
}

/// Returns a ReadListing that adds the adapters of the folder `adapter`; none if that is empty.
template <class Model>
ReadListing read_listing_with(const std::filesystem::path& adapter) {
  return [adapter](const std::filesystem::path& folder) {
    return listing_of(Model(read_config<typename Model::Config>(folder, adapter), Units{}));
  };
}

/// The opened files of a model.
struct ModelFiles {
  ModelListing listing;
  WeightFiles weights;
  std::optional<AdapterFiles> adapters = {};  ///< if adapters are in a separate folder

  /// Reads a range of any parameter of the listing, as WeightFiles does.
  void read_range(const std::string& name, std::int64_t begin, std::int64_t count, float* out) const;
  /// The same; throws InputError, which names the file and the element, for a value that is not finite.
  void read_finite(const std::string& name, std::int64_t begin, std::int64_t count, float* out) const;
};

/// Opens a model's folder, and the folder of its adapters unless `adapter` is empty. Checks every name and shape
/// against the configs. Throws InputError. Tensors that the model ignores are no error, unless they must be copies of
/// others and are not.
ModelFiles open_model(const std::filesystem::path& folder, const ReadListing& read, const Warn& warn,
                      const std::filesystem::path& adapter = {});
template <class Model>
ModelFiles open_model(const std::filesystem::path& folder, const Warn& warn = {},
                      const std::filesystem::path& adapter = {}) {
  return open_model(folder, read_listing_with<Model>(adapter), warn, adapter);
}

/// Returns a line for each .json and .safetensors file directly in a folder: path, bytes, digest. The digest of a large
/// .safetensors file covers only a sample of its bytes. Throws InputError.
std::string folder_identity(const std::filesystem::path& folder);

/// Throws InputError unless the files have exactly the expected tensors: unknown and missing names (up to 10 of each),
/// then the first tensor whose shape differs, with both shapes.
void check_tensors(const WeightFiles& files, std::span<const NamedShape> expected,
                   const std::function<bool(const std::string&)>& ignored = {});

}  // namespace fsdp::checkpoint

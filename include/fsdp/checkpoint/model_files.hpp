// SPDX-License-Identifier: Apache-2.0
/// @file
/// A folder with config.json and weights: a model, as anyone may have written it.
///
/// Not here: the optimizer and the trainer's position (checkpoint/folder.hpp).
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fsdp/checkpoint/adapters.hpp>
#include <fsdp/checkpoint/weight_files.hpp>
#include <fsdp/models/config_values.hpp>
#include <fsdp/models/lora_config.hpp>
#include <fsdp/module/units.hpp>

namespace fsdp::checkpoint {

/// What a folder of a model must hold, and which model it is.
struct ModelListing {
  std::vector<NamedShape> parameters = {};  ///< in the order of the model's units
  std::string config = {};                  ///< the text of config.json
  ConfigValues values = {};                 ///< of the config: those that say which model it is
  std::optional<LoraConfig> lora = {};      ///< where some parameters are adapters
  /// Whether a stored tensor is not used, and why; an empty text is not worth a warning.
  std::function<std::optional<std::string>(const std::string&)> ignored = {};
};

/// Of all parameters and values of a config; `may_change`: of a value that says nothing of which model it is.
ModelListing listing_of(std::span<const NamedParameter> parameters, std::string config, const ConfigValues& values,
                        bool (*may_change)(const std::string& name));

template <class Model>
ModelListing listing_of(const Model& model) {
  using Config = typename Model::Config;
  const auto may_change = [](const std::string& name) -> bool {
    if constexpr (requires { Config::may_change(name); })
      return Config::may_change(name);
    else
      return false;
  };
  ModelListing listing =
      listing_of(parameter_list(model), model.config().write(), values_of(model.config()), may_change);
  if constexpr (HasAdapters<Config>)
    if (model.config().adapters().on()) listing.lora = model.config().adapters();
  if constexpr (requires { model.ignored(std::string()); })
    listing.ignored = [model](const std::string& name) { return model.ignored(name); };
  return listing;
}

/// How the listing of a folder's model is made from its config.json. Throws InputError.
using ReadListing = std::function<ModelListing(const std::filesystem::path& folder)>;

template <class Model>
ModelListing read_listing(const std::filesystem::path& folder) {
  return listing_of(Model(Model::Config::read(folder), Units{}));
}

/// The same with the adapters of another folder; where that is empty, with none.
template <class Model>
ReadListing read_listing_with(const std::filesystem::path& adapter) {
  return [adapter](const std::filesystem::path& folder) {
    return listing_of(Model(read_config<typename Model::Config>(folder, adapter), Units{}));
  };
}

struct ModelFiles {
  ModelListing listing;
  WeightFiles weights;
  std::optional<AdapterFiles> adapters = {};  ///< where they are in a folder of their own

  /// As WeightFiles, of any parameter of the listing.
  void read_range(const std::string& name, std::int64_t begin, std::int64_t count, float* out) const;
};

/// Opens the folder, and that of its adapters where there is one, and checks every name and shape against their
/// configs. Throws InputError. Tensors that the model ignores are no error.
ModelFiles open_model(const std::filesystem::path& folder, const ReadListing& read, const Warn& warn,
                      const std::filesystem::path& adapter = {});
template <class Model>
ModelFiles open_model(const std::filesystem::path& folder, const Warn& warn = {},
                      const std::filesystem::path& adapter = {}) {
  return open_model(folder, read_listing_with<Model>(adapter), warn, adapter);
}

/// A line for each .json and .safetensors file directly in a folder: name, bytes, digest. Throws InputError.
std::string folder_identity(const std::filesystem::path& folder);

/// Throws InputError unless the files have exactly the expected tensors: unknown and missing names (up to 10 of each),
/// then the first tensor whose shape differs, with both shapes.
void check_tensors(const WeightFiles& files, std::span<const NamedShape> expected,
                   const std::function<bool(const std::string&)>& ignored = {});

}  // namespace fsdp::checkpoint

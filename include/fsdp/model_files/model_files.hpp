// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's folder, config.json and weights, written by Tessera or by any other program; and folders of adapters in
/// PEFT's format, adapter_config.json (tessera/fsdp/models/lora_config.hpp) and adapter_model.safetensors. Not here:
/// the optimizer state and the trainer's state (tessera/fsdp/checkpoint/folder.hpp).
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/checkpoint/listing.hpp>
#include <tessera/fsdp/checkpoint/safetensors.hpp>
#include <tessera/fsdp/checkpoint/weight_files.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/core/named_values.hpp>
#include <tessera/fsdp/models/lora_config.hpp>
#include <tessera/fsdp/models/units_of.hpp>

namespace fsdp::checkpoint {

inline constexpr const char* adapter_config_name = "adapter_config.json";
inline constexpr const char* adapter_weights_name = "adapter_model.safetensors";

/// Opens the weights in a folder of adapters, without the model that they belong to. Throws InputError, also if the
/// folder contains weights only in another form.
SafetensorsFile open_adapter_weights(const std::filesystem::path& folder);

/// Throws InputError unless a file contains pairs of A and B with the config's rank, only for modules that match a
/// target, and at least one pair for each target.
void check_adapters(const SafetensorsFile& file, const LoraConfig& lora);

/// Returns PEFT's name for a parameter of the model.
std::string peft_name(std::string_view name);

/// Returns the text of adapter_config.json for a model's adapters. `parameters`: all parameters of the model.
std::string adapter_config(const LoraConfig& lora, std::span<const NamedShape> parameters);

/// Returns only the adapters if `adapters`, else only the other parameters.
std::vector<NamedShape> only(std::span<const NamedShape> parameters, bool adapters);

/// The tensors and config values that a model's folder must have.
struct ModelListing : Listing {
  std::optional<LoraConfig> lora = {};  ///< description of the adapters, if some parameters are adapters
};

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
  ModelListing listing{
      listing_of(parameter_list(model), model.config().write(), values_of(model.config()), may_change)};
  if constexpr (HasAdapters<Config>)
    if (model.config().adapters().on()) listing.lora = model.config().adapters();
  static_assert(check_ignored_tensors<Model>());
  if constexpr (fsdp::detail::has_ignored<Model>())
    listing.ignored = [model](const std::string& name) { return model.ignored(name); };
  if constexpr (fsdp::detail::has_copied<Model>())
    listing.copied = [model](const std::string& name) { return model.copied(name); };
  return listing;
}

/// Makes the listing of a folder's model from its config.json. Throws InputError if the config is not valid.
using ReadModelListing = std::function<ModelListing(const std::filesystem::path& folder)>;

/// Returns the listing of a folder's model.
template <class Model>
ModelListing read_listing(const std::filesystem::path& folder) {
  return listing_of(Model(Model::Config::read(folder), UnitOptions{}));
}

/// Returns a ReadModelListing that adds the adapters of the folder `adapter`, or no adapters if `adapter` is empty.
template <class Model>
ReadModelListing read_listing_with(const std::filesystem::path& adapter) {
  return [adapter](const std::filesystem::path& folder) {
    return listing_of(Model(read_config<typename Model::Config>(folder, adapter), UnitOptions{}));
  };
}

/// The opened files of a model.
struct ModelFiles {
  ModelListing listing;
  WeightFiles weights;
  std::optional<WeightFiles> adapters = {};  ///< the adapters by PEFT's names, if they are in a separate folder

  /// Reads a range of any parameter of the listing, as WeightFiles does. Throws InputError, which reports the file and
  /// the element, for a value that is not finite.
  void read_finite(const std::string& name, std::int64_t begin, std::int64_t count, float* out) const;
};

/// Opens a model's folder, and the folder of its adapters unless `adapter` is empty. Checks every name and shape
/// against the configs. Throws InputError if they differ. Tensors that the model ignores are not an error, unless they
/// must be copies of other tensors and are not.
ModelFiles open_model(const std::filesystem::path& folder, const ReadModelListing& read, const Warn& warn,
                      const std::filesystem::path& adapter = {});
template <class Model>
ModelFiles open_model(const std::filesystem::path& folder, const Warn& warn = {},
                      const std::filesystem::path& adapter = {}) {
  return open_model(folder, read_listing_with<Model>(adapter), warn, adapter);
}

/// Returns the folder of a model: `path` itself, or the newest valid step in a directory of checkpoints. Throws
/// InputError for a folder that is neither.
std::filesystem::path model_folder(const std::filesystem::path& path, const ReadModelListing& read, const Warn& warn);

}  // namespace fsdp::checkpoint

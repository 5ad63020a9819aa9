// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/model_files/model_files.hpp>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/checkpoint/listing.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "../checkpoint/listed_weights.hpp"
#include "../core/paths.hpp"
#include "adapter_weights.hpp"

namespace fsdp::checkpoint {
namespace {

constexpr std::string_view peft_prefix = "base_model.model.";
constexpr std::string_view weight_suffix = ".weight";

std::vector<NamedShape> renamed(std::vector<NamedShape> parameters) {
  for (NamedShape& parameter : parameters) parameter.name = peft_name(parameter.name);
  return parameters;
}

}  // namespace

std::string peft_name(std::string_view name) { return std::string(peft_prefix) + std::string(name); }

std::vector<NamedShape> only(std::span<const NamedShape> parameters, bool adapters) {
  std::vector<NamedShape> list;
  std::ranges::copy_if(parameters, std::back_inserter(list),
                       [&](const NamedShape& parameter) { return parameter.adapter == adapters; });
  return list;
}

AdapterFiles AdapterFiles::open(const std::filesystem::path& folder, std::span<const NamedShape> parameters) {
  WeightFiles files(open_adapter_weights(folder));
  try {
    check_tensors(files, renamed(only(parameters, true)));
  } catch (const InputError& error) {
    throw InputError(message(error.what(), ": the adapters are another model's, or not of the rank that ",
                             adapter_config_name, " says"));
  }
  return AdapterFiles(std::move(files));
}

void AdapterFiles::read_finite(std::string_view name, std::int64_t begin, std::int64_t count, float* out) const {
  files_.read_finite(peft_name(name), begin, count, out);
}

std::string adapter_config(const LoraConfig& lora, std::span<const NamedShape> parameters) {
  std::vector<std::string> modules, others;
  for (const NamedShape& parameter : only(parameters, true))
    if (parameter.name.ends_with(a_suffix))
      modules.push_back(parameter.name.substr(0, parameter.name.size() - a_suffix.size()));
  for (const NamedShape& parameter : only(parameters, false)) {
    if (!parameter.name.ends_with(weight_suffix)) continue;
    std::string name = parameter.name.substr(0, parameter.name.size() - weight_suffix.size());
    if (std::ranges::find(modules, name) == modules.end()) others.push_back(std::move(name));
  }
  return lora.write(modules, others);
}

namespace {

/// Warns if the folder contains adapters next to its weights.
void warn_of_adapters(const std::filesystem::path& folder, const Warn& warn) {
  if (warn && path_exists(folder / adapter_config_name))
    warn(message(folder.string(), ": holds adapters as well, which are not read; name them by --adapter"));
}

}  // namespace

ModelFiles open_model(const std::filesystem::path& folder, const ReadModelListing& read, const Warn& warn,
                      const std::filesystem::path& adapter) {
  require_folder(folder);
  const std::optional<Manifest> manifest = read_manifest(folder);
  check_config(folder, manifest);
  ModelListing listing = read(folder);
  const bool apart = !adapter.empty();
  const std::vector<NamedShape> expected = apart ? only(listing.parameters, false) : listing.parameters;
  WeightFiles weights = open_weights(folder, listing, expected, warn, manifest);
  ModelFiles model{.listing = std::move(listing), .weights = std::move(weights)};
  if (apart)
    model.adapters = AdapterFiles::open(adapter, model.listing.parameters);
  else
    warn_of_adapters(folder, warn);
  return model;
}

std::filesystem::path model_folder(const std::filesystem::path& path, const ReadModelListing& read, const Warn& warn) {
  if (path_exists(path / config_name) || !folder_exists(path)) return path;
  const auto newest = find_latest(path, read, warn);
  require<InputError>(newest.has_value(), path.string(),
                      ": neither a model's folder, with config.json, nor a directory with a complete checkpoint");
  return *newest;
}

void ModelFiles::read_finite(const std::string& name, std::int64_t begin, std::int64_t count, float* out) const {
  if (adapters && weights.find(name) == nullptr)
    adapters->read_finite(name, begin, count, out);
  else
    weights.read_finite(name, begin, count, out);
}

}  // namespace fsdp::checkpoint

// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/model_files/model_files.hpp>

#include <utility>
#include <vector>

#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "../checkpoint/listed_weights.hpp"
#include "../core/paths.hpp"

namespace fsdp::checkpoint {
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

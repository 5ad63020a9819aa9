// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/model_files.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/identity.hpp>

#include "../core/require_folder.hpp"
#include "copies.hpp"
#include "strict_json.hpp"
#include "verified_model.hpp"

namespace fsdp::checkpoint {
namespace {

constexpr std::size_t most_listed = 10;
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most_listed); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > most_listed) text += " and " + std::to_string(names.size() - most_listed) + " more";
  return text;
}

}  // namespace

ModelListing listing_of(std::span<const Parameter> parameters, std::string config, const ConfigValues& values,
                        bool (*may_change)(const std::string& name)) {
  ModelListing listing{.config = std::move(config)};
  for (const Parameter& parameter : parameters) {
    const auto extents = parameter.shape.extents.begin();
    listing.parameters.push_back({parameter.name, {extents, extents + parameter.shape.rank}, parameter.adapter});
  }
  for (const ConfigValue& value : values)
    if (!may_change(value.name)) listing.values.push_back(value);
  return listing;
}

void check_tensors(const WeightFiles& files, std::span<const NamedShape> expected,
                   const std::function<bool(const std::string&)>& ignored) {
  const std::string path = files.path().string();
  std::vector<std::string> missing, unknown;
  std::set<std::string> names;
  for (const NamedShape& tensor : expected) {
    names.insert(tensor.name);
    const TensorInfo* stored = files.find(tensor.name);
    if (stored == nullptr) {
      missing.push_back(tensor.name);
      continue;
    }
    require<InputError>(stored->shape == tensor.shape, path, ": tensor \"", tensor.name, "\" has shape ",
                        shape_text(stored->shape), " where the model has ", shape_text(tensor.shape));
    require<InputError>(is_weight_type(stored->dtype), path, ": tensor \"", tensor.name, "\" is ", stored->dtype,
                        "; weights must be F32, BF16, F16 or F64");
  }
  for (const TensorInfo* const tensor : files.tensors())
    if (!names.contains(tensor->name) && !(ignored && ignored(tensor->name))) unknown.push_back(tensor->name);
  require<InputError>(missing.empty(), path, ": lacks ", missing.size(), " tensors of the model: ", listed(missing),
                      unknown.empty() ? "" : "; and has unknown ones: ", listed(unknown));
  require<InputError>(unknown.empty(), path, ": has ", unknown.size(),
                      " tensors that the model lacks: ", listed(unknown));
}

std::shared_ptr<const FileSums> sums_for(const std::optional<Manifest>& manifest, const std::filesystem::path& file) {
  return manifest ? std::make_shared<const FileSums>(sums_in(*manifest, file)) : nullptr;
}

ModelFiles open_model(const std::filesystem::path& folder, const ReadListing& read, const Warn& warn,
                      const std::filesystem::path& adapter) {
  require_folder(folder);
  return open_verified_model(folder, read, warn, read_manifest(folder), adapter);
}

ModelFiles open_verified_model(const std::filesystem::path& folder, const ReadListing& read, const Warn& warn,
                               const std::optional<Manifest>& manifest, const std::filesystem::path& adapter) {
  const std::filesystem::path config = folder / config_name;
  if (manifest) check_content(*manifest, config, read_small_file(config, most_config_bytes));
  ModelFiles model{.listing = read(folder),
                   .weights = manifest ? SafetensorsFile(folder / model_name, sums_for(manifest, folder / model_name))
                                       : WeightFiles::open(folder, warn)};
  const auto reason = [&](const std::string& name) {
    return model.listing.ignored ? model.listing.ignored(name) : std::nullopt;
  };
  const bool apart = !adapter.empty();
  check_tensors(model.weights, apart ? only(model.listing.parameters, false) : model.listing.parameters,
                [&](const std::string& name) { return reason(name).has_value(); });
  if (apart) model.adapters = AdapterFiles::open(adapter, model.listing.parameters);
  if (std::error_code error; warn && !apart && std::filesystem::exists(folder / adapter_config_name, error))
    warn(message(folder.string(), ": holds adapters as well, which are not read; name them by --adapter"));
  for (const TensorInfo* const tensor : model.weights.tensors()) {
    const auto why = reason(tensor->name);
    if (!why) continue;
    if (const auto original = model.listing.copied ? model.listing.copied(tensor->name) : std::nullopt)
      require_copy(model.weights, tensor->name, *original);
    if (warn && !why->empty()) warn(message(model.weights.path().string(), ": ", tensor->name, " is ignored, ", *why));
  }
  return model;
}

void ModelFiles::read_range(const std::string& name, std::int64_t begin, std::int64_t count, float* out) const {
  if (adapters && weights.find(name) == nullptr)
    adapters->read_range(name, begin, count, out);
  else
    weights.read_range(name, begin, count, out);
}

void ModelFiles::read_finite(const std::string& name, std::int64_t begin, std::int64_t count, float* out) const {
  if (adapters && weights.find(name) == nullptr)
    adapters->read_finite(name, begin, count, out);
  else
    weights.read_finite(name, begin, count, out);
}

std::string folder_identity(const std::filesystem::path& folder) {
  constexpr Looked weights{.whole = 1 << 20, .blocks = 4};  // only a sample, since every rank does this
  std::map<std::string, std::string> lines;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string kind = entry.path().extension().string();
    std::error_code gone;
    if ((kind != ".json" && kind != ".safetensors") || !entry.is_regular_file(gone)) continue;
    const std::string name = entry.path().filename().string();
    lines[name] = message(entry.path().string(), " = ", entry.file_size(gone), " bytes, digest ",
                          digest_text(digest_of_file(entry.path(), kind == ".json" ? Looked{} : weights)), "\n");
  }
  require<InputError>(!error, folder.string(), ": cannot be listed: ", error.message());
  std::string text;
  for (const auto& [name, line] : lines) text += line;
  return text;
}

}  // namespace fsdp::checkpoint

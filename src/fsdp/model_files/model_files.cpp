// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/model_files/model_files.hpp>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "../checkpoint/manifest.hpp"
#include "../core/paths.hpp"

namespace fsdp::checkpoint {
namespace {

constexpr std::string_view peft_prefix = "base_model.model.";
constexpr std::string_view weight_suffix = ".weight";
/// Suffixes that follow a module's name in the names of its adapters.
constexpr std::string_view a_suffix = ".lora_A.weight", b_suffix = ".lora_B.weight";

/// Throws InputError unless a tensor is the matrix A or B of a module that the config adapts. Returns the module's
/// name.
std::string module_of(const SafetensorsFile& file, const TensorInfo& tensor, const LoraConfig& lora) {
  const std::string where = message(file.path().string(), ": tensor \"", tensor.name, "\" ");
  const std::string prefix = peft_name("");
  const bool is_a = tensor.name.ends_with(a_suffix), is_b = tensor.name.ends_with(b_suffix);
  require<InputError>(tensor.name.starts_with(prefix) && (is_a || is_b), where, "is no adapter's; those are called ",
                      prefix, "MODULE", a_suffix, " and ", b_suffix);
  std::string module = tensor.name.substr(
      prefix.size(), tensor.name.size() - std::min(tensor.name.size(), prefix.size() + a_suffix.size()));
  require<InputError>(lora.targets_projection(module), where, "is of a module that \"target_modules\" of ",
                      adapter_config_name, " does not name");
  require<InputError>(tensor.shape.size() == 2 && tensor.shape[is_a ? 0 : 1] == lora.rank, where, "has shape ",
                      shape_text(tensor.shape), ", and ", adapter_config_name, " says \"r\": ", lora.rank);
  require<InputError>(is_weight_type(tensor.dtype), where, "is ", tensor.dtype,
                      "; weights must be F32, BF16, F16 or F64");
  const std::string other = message(prefix, module, is_a ? b_suffix : a_suffix);
  require<InputError>(file.find(other) != nullptr, where, "stands alone: the file lacks \"", other, "\"");
  return module;
}

/// Opens the weights of adapters. `parameters`: all parameters of a model with the adapters of the folder's config.
/// Throws InputError unless the adapters in the folder are exactly those in `parameters`.
WeightFiles open_adapters(const std::filesystem::path& folder, std::span<const NamedShape> parameters) {
  std::vector<NamedShape> stored = only(parameters, true);
  for (NamedShape& parameter : stored) parameter.name = peft_name(parameter.name);
  WeightFiles files(open_adapter_weights(folder));
  try {
    check_tensors(files, stored);
  } catch (const InputError& error) {
    throw InputError(message(error.what(), ": the adapters are another model's, or not of the rank that ",
                             adapter_config_name, " says"));
  }
  return files;
}

}  // namespace

std::string peft_name(std::string_view name) { return std::string(peft_prefix) + std::string(name); }

std::vector<NamedShape> only(std::span<const NamedShape> parameters, bool adapters) {
  std::vector<NamedShape> list;
  std::ranges::copy_if(parameters, std::back_inserter(list),
                       [&](const NamedShape& parameter) { return parameter.adapter == adapters; });
  return list;
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

SafetensorsFile open_adapter_weights(const std::filesystem::path& folder) {
  for (const char* const other : {"adapter_model.bin", "adapter_model.pt", "adapters.safetensors"})
    require<InputError>(path_exists(folder / adapter_weights_name) || !path_exists(folder / other), folder.string(),
                        ": holds ", other, ", which is not read, and no ", adapter_weights_name,
                        "; save the adapters with PEFT's save_pretrained, which writes that");
  return SafetensorsFile(folder / adapter_weights_name);
}

void check_adapters(const SafetensorsFile& file, const LoraConfig& lora) {
  std::set<std::string> modules;
  for (const TensorInfo& tensor : file.tensors()) modules.insert(module_of(file, tensor, lora));
  for (const std::string& pattern : lora.patterns())
    require<InputError>(
        std::ranges::any_of(modules, [&](const std::string& module) { return LoraConfig::matches(pattern, module); }),
        file.path().string(), ": holds nothing for \"", pattern, "\", which \"target_modules\" of ",
        adapter_config_name, " names");
}

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
    model.adapters = open_adapters(adapter, model.listing.parameters);
  else if (warn && path_exists(folder / adapter_config_name))
    warn(message(folder.string(), ": holds adapters as well, which are not read; name them by --adapter"));
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
    adapters->read_finite(peft_name(name), begin, count, out);
  else
    weights.read_finite(name, begin, count, out);
}

}  // namespace fsdp::checkpoint

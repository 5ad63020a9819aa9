// SPDX-License-Identifier: Apache-2.0
#include "adapter_weights.hpp"

#include <algorithm>
#include <set>
#include <string>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/model_files/model_files.hpp>

#include "../core/paths.hpp"

namespace fsdp::checkpoint {
namespace {

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

}  // namespace

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

}  // namespace fsdp::checkpoint

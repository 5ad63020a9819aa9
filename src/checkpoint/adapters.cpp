// SPDX-License-Identifier: Apache-2.0
#include <fsdp/checkpoint/adapters.hpp>

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

#include <fsdp/checkpoint/model_files.hpp>
#include <fsdp/core/error.hpp>

namespace fsdp::checkpoint {
namespace {

constexpr std::string_view peft_prefix = "base_model.model.";
constexpr std::string_view a_suffix = ".lora_A.weight", weight_suffix = ".weight";

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
  std::error_code error;
  for (const char* const other : {"adapter_model.bin", "adapter_model.pt", "adapters.safetensors"})
    require<InputError>(std::filesystem::exists(folder / adapter_weights_name, error) ||
                            !std::filesystem::exists(folder / other, error),
                        folder.string(), ": holds ", other, ", which is not read, and no ", adapter_weights_name,
                        "; save the adapters with PEFT's save_pretrained, which writes that");
  WeightFiles files(SafetensorsFile(folder / adapter_weights_name));
  try {
    check_tensors(files, renamed(only(parameters, true)));
  } catch (const InputError& error) {
    throw InputError(message(error.what(), ": the adapters are another model's, or not of the rank that ",
                             adapter_config_name, " says"));
  }
  return AdapterFiles(std::move(files));
}

void AdapterFiles::read_range(std::string_view name, std::int64_t begin, std::int64_t count, float* out) const {
  files_.read_range(peft_name(name), begin, count, out);
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

}  // namespace fsdp::checkpoint

// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/model_files/adapters.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

#include <tessera/fsdp/checkpoint/listing.hpp>
#include <tessera/fsdp/core/error.hpp>

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

}  // namespace fsdp::checkpoint

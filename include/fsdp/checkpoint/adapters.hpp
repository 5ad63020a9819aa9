// SPDX-License-Identifier: Apache-2.0
/// @file
/// A folder of adapters as PEFT writes it: adapter_config.json (models/lora_config.hpp) and adapter_model.safetensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fsdp/checkpoint/named_shape.hpp>
#include <fsdp/checkpoint/weight_files.hpp>
#include <fsdp/models/lora_config.hpp>

namespace fsdp::checkpoint {

inline constexpr const char* adapter_config_name = "adapter_config.json";
inline constexpr const char* adapter_weights_name = "adapter_model.safetensors";

/// Adapters that were opened and checked.
class AdapterFiles {
 public:
  /// Throws InputError unless the folder holds exactly the adapters among `parameters`, a model's with the adapters of
  /// the folder's config.
  static AdapterFiles open(const std::filesystem::path& folder, std::span<const NamedShape> parameters);

  /// As WeightFiles, by the model's own name of the parameter.
  void read_range(std::string_view name, std::int64_t begin, std::int64_t count, float* out) const;

 private:
  explicit AdapterFiles(WeightFiles files) : files_(std::move(files)) {}
  WeightFiles files_;
};

/// The name that PEFT gives a parameter.
std::string peft_name(std::string_view name);

/// The adapter_config.json of a model's adapters.
std::string adapter_config(const LoraConfig& lora, std::span<const NamedShape> parameters);

/// The parameters that are no adapters, or that are.
std::vector<NamedShape> only(std::span<const NamedShape> parameters, bool adapters);

}  // namespace fsdp::checkpoint

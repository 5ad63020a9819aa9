// SPDX-License-Identifier: Apache-2.0
/// @file
/// Folders of adapters in PEFT's format: adapter_config.json (tessera/fsdp/models/lora_config.hpp) and
/// adapter_model.safetensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/checkpoint/named_shape.hpp>
#include <tessera/fsdp/checkpoint/weight_files.hpp>
#include <tessera/fsdp/models/lora_config.hpp>

namespace fsdp::checkpoint {

inline constexpr const char* adapter_config_name = "adapter_config.json";
inline constexpr const char* adapter_weights_name = "adapter_model.safetensors";

/// The opened and checked weights of adapters.
class AdapterFiles {
 public:
  /// `parameters`: all parameters of a model with the adapters of the folder's config. Throws InputError unless the
  /// adapters in the folder are exactly those in `parameters`.
  static AdapterFiles open(const std::filesystem::path& folder, std::span<const NamedShape> parameters);

  /// Reads as WeightFiles does. Throws InputError for a value that is not finite. `name`: the parameter's name in the
  /// model, not PEFT's.
  void read_finite(std::string_view name, std::int64_t begin, std::int64_t count, float* out) const;

 private:
  explicit AdapterFiles(WeightFiles files) : files_(std::move(files)) {}
  WeightFiles files_;
};

/// Returns PEFT's name for a parameter of the model.
std::string peft_name(std::string_view name);

/// Returns the text of adapter_config.json for a model's adapters. `parameters`: all parameters of the model.
std::string adapter_config(const LoraConfig& lora, std::span<const NamedShape> parameters);

/// Returns only the adapters if `adapters`, else only the other parameters.
std::vector<NamedShape> only(std::span<const NamedShape> parameters, bool adapters);

}  // namespace fsdp::checkpoint

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The weight file in a folder of adapters, without the model that they belong to.
#pragma once

#include <filesystem>
#include <string_view>

#include <tessera/fsdp/checkpoint/safetensors.hpp>
#include <tessera/fsdp/models/lora_config.hpp>

namespace fsdp::checkpoint {

/// Suffixes that follow a module's name in the names of its adapters.
inline constexpr std::string_view a_suffix = ".lora_A.weight", b_suffix = ".lora_B.weight";

/// Opens the weights in a folder of adapters. Throws InputError, also if the folder contains weights only in another
/// form.
SafetensorsFile open_adapter_weights(const std::filesystem::path& folder);

/// Throws InputError unless a file contains pairs of A and B with the config's rank, only for modules that match a
/// target, and at least one pair for each target.
void check_adapters(const SafetensorsFile& file, const LoraConfig& lora);

}  // namespace fsdp::checkpoint

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The file of weights in a folder of adapters, without the model that they belong to.
#pragma once

#include <filesystem>
#include <string_view>

#include <tessera/fsdp/checkpoint/safetensors.hpp>
#include <tessera/fsdp/models/lora_config.hpp>

namespace fsdp::checkpoint {

/// What follows a module's name in the names of its adapters.
inline constexpr std::string_view a_suffix = ".lora_A.weight", b_suffix = ".lora_B.weight";

/// Opens the weights in a folder of adapters. Throws InputError, also if they are there in another form alone.
SafetensorsFile open_adapter_weights(const std::filesystem::path& folder);

/// Throws InputError unless a file holds pairs of A and B of the config's rank, for modules that its targets name, and
/// some for each of the targets.
void check_adapters(const SafetensorsFile& file, const LoraConfig& lora);

}  // namespace fsdp::checkpoint

// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a model's folder may hold besides config.json and weights, and what goes with the model from folder to folder.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <fsdp/checkpoint/weight_files.hpp>

namespace fsdp::checkpoint {

/// Contents by name: the tokenizer's files and generation_config.json.
using SideFiles = std::map<std::string, std::string>;

/// Those that a folder holds; what its manifest lists must be what was written. One that cannot be read is left out
/// with a warning, or, without `warn`, thrown as InputError.
SideFiles read_side_files(const std::filesystem::path& folder, const Warn& warn = {});

/// Those of a tokenizer alone: `path` is its tokenizer.json, or its folder.
SideFiles read_tokenizer_files(const std::filesystem::path& path, const Warn& warn = {});

}  // namespace fsdp::checkpoint

// SPDX-License-Identifier: Apache-2.0
/// @file
/// Side files: files in a model's folder, other than config.json and weights, that are copied together with the model.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <tessera/fsdp/checkpoint/weight_files.hpp>

namespace fsdp::checkpoint {

/// The tokenizer's files and generation_config.json: file contents by name.
using SideFiles = std::map<std::string, std::string>;

/// Reads the side files of a folder, and checks those that its manifest lists. A file that cannot be read is omitted
/// with a warning; without `warn` it is an InputError.
SideFiles read_side_files(const std::filesystem::path& folder, const Warn& warn = {});

/// Reads only the files of a tokenizer. `path`: its tokenizer.json, or the folder that contains it.
SideFiles read_tokenizer_files(const std::filesystem::path& path, const Warn& warn = {});

}  // namespace fsdp::checkpoint

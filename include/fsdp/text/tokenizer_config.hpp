// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where a model's tokenizer is, and which token ends its texts.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <fsdp/text/tokenizer.hpp>

namespace fsdp::text {

/// The tokenizer.json of a path: the file itself, or the one in a folder; nothing where a folder has none.
std::optional<std::filesystem::path> find_tokenizer(const std::filesystem::path& path);
/// The same of --tokenizer. Throws InputError where a folder has none.
std::filesystem::path tokenizer_at(const std::filesystem::path& path);

/// The name that "eos_token" has in the tokenizer_config.json beside a tokenizer.json; nothing where there is none.
/// Throws InputError for a damaged file.
std::optional<std::string> end_token_beside(const std::filesystem::path& tokenizer);

}  // namespace fsdp::text

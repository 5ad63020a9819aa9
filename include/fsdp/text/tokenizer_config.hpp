// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where a model's tokenizer is, its special tokens by their names, and its chat template.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <fsdp/text/tokenizer.hpp>

namespace fsdp::text {

/// The tokenizer.json of a path: the file itself, or the one in a folder; nothing where a folder has none.
std::optional<std::filesystem::path> find_tokenizer(const std::filesystem::path& path);
/// The same of --tokenizer. Throws InputError where a folder has none.
std::filesystem::path tokenizer_at(const std::filesystem::path& path);

/// What tokenizer_config.json beside a tokenizer.json calls bos_token, eos_token and so on: those that it names. Throws
/// InputError for a damaged file.
std::map<std::string, std::string> special_tokens_beside(const std::filesystem::path& tokenizer);

/// A text and where it comes from.
struct NamedText {
  std::string name = {};
  std::string text = {};
};

/// The chat template beside a tokenizer.json: chat_template.jinja, or what tokenizer_config.json holds; nothing where
/// there is none. Throws InputError for a damaged file.
std::optional<NamedText> chat_template_beside(const std::filesystem::path& tokenizer);

/// The name that "eos_token" has in the tokenizer_config.json beside a tokenizer.json; nothing where there is none.
/// Throws InputError for a damaged file.
std::optional<std::string> end_token_beside(const std::filesystem::path& tokenizer);

}  // namespace fsdp::text

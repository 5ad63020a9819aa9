// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds a model's tokenizer, and reads its special tokens and chat template from the files beside it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <fsdp/text/tokenizer.hpp>

namespace fsdp::text {

/// Returns the tokenizer.json of a path: the path itself if it is not a folder, else the file in it; nothing if the
/// folder has none.
std::optional<std::filesystem::path> find_tokenizer(const std::filesystem::path& path);
/// The same for the value of --tokenizer. Throws InputError if the folder has none.
std::filesystem::path tokenizer_at(const std::filesystem::path& path);

/// Reads the special tokens (bos_token, eos_token and so on) that the tokenizer_config.json beside a tokenizer.json
/// names. Returns them by key. Throws InputError for a damaged file.
std::map<std::string, std::string> special_tokens_beside(const std::filesystem::path& tokenizer);

/// A text and the name of its source.
struct NamedText {
  std::string name = {};
  std::string text = {};
};

/// Reads the chat template beside a tokenizer.json: chat_template.jinja, or else the one in tokenizer_config.json.
/// Returns nothing if there is none. Throws InputError for a damaged file.
std::optional<NamedText> chat_template_beside(const std::filesystem::path& tokenizer);

/// Returns the token that "eos_token" names in the tokenizer_config.json beside a tokenizer.json; nothing if there is
/// none. Throws InputError for a damaged file.
std::optional<std::string> end_token_beside(const std::filesystem::path& tokenizer);

}  // namespace fsdp::text

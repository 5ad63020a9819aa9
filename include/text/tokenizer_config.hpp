// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds a model's tokenizer, and reads its special tokens and chat template from the files in its folder.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <tessera/text/tokenizer.hpp>

namespace fsdp::text {

/// Returns the tokenizer.json for a path: the path itself if it is not a folder, else the tokenizer.json in the folder;
/// nothing if the folder does not contain one.
std::optional<std::filesystem::path> find_tokenizer(const std::filesystem::path& path);
/// Like find_tokenizer, for the value of --tokenizer. Throws InputError if the folder does not contain a
/// tokenizer.json.
std::filesystem::path tokenizer_at(const std::filesystem::path& path);

/// Reads the special tokens (bos_token, eos_token and so on) from the files next to a tokenizer.json, as `transformers`
/// does: from tokenizer_config.json and, if that has no "added_tokens_decoder", from special_tokens_map.json, which
/// takes precedence. Returns the tokens by key. Throws InputError for a damaged file.
std::map<std::string, std::string> special_tokens_beside(const std::filesystem::path& tokenizer);

/// Returns the token that ends a document. `asked`: the name of the requested token; "none" for no token; if empty, the
/// eos_token of `special` is used. Throws InputError if no end token is known, or if the tokenizer, read from `file`,
/// does not have it.
std::optional<TokenId> end_token_of(const Tokenizer& tokenizer, const std::filesystem::path& file,
                                    const std::map<std::string, std::string>& special, const std::string& asked);

/// A text and the name of its source.
struct NamedText {
  std::string name = {};
  std::string text = {};
};

/// Reads the chat template next to a tokenizer.json: chat_template.jinja, or else the template in
/// tokenizer_config.json. Returns nothing if neither exists. Throws InputError for a damaged file.
std::optional<NamedText> chat_template_beside(const std::filesystem::path& tokenizer);

}  // namespace fsdp::text

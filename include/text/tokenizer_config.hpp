// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds a model's tokenizer, and reads its special tokens and chat template from the files beside it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <tessera/text/tokenizer.hpp>

namespace fsdp::text {

/// Returns the tokenizer.json of a path: the path itself if it is not a folder, else the file in it; nothing if the
/// folder has none.
std::optional<std::filesystem::path> find_tokenizer(const std::filesystem::path& path);
/// The same for the value of --tokenizer. Throws InputError if the folder has none.
std::filesystem::path tokenizer_at(const std::filesystem::path& path);

/// Reads the special tokens (bos_token, eos_token and so on) that the files beside a tokenizer.json name, as
/// `transformers` does: tokenizer_config.json, and, where it has no "added_tokens_decoder", special_tokens_map.json,
/// which takes precedence. Returns them by key. Throws InputError for a damaged file.
std::map<std::string, std::string> special_tokens_beside(const std::filesystem::path& tokenizer);

/// Returns the token that ends a document. `asked`: its name; "none": no token; empty: the eos_token of `special`.
/// Throws InputError if none is known or the tokenizer, read from `file`, has no such token.
std::optional<TokenId> end_token_of(const Tokenizer& tokenizer, const std::filesystem::path& file,
                                    const std::map<std::string, std::string>& special, const std::string& asked);

/// A text and the name of its source.
struct NamedText {
  std::string name = {};
  std::string text = {};
};

/// Reads the chat template beside a tokenizer.json: chat_template.jinja, or else the one in tokenizer_config.json.
/// Returns nothing if there is none. Throws InputError for a damaged file.
std::optional<NamedText> chat_template_beside(const std::filesystem::path& tokenizer);

}  // namespace fsdp::text

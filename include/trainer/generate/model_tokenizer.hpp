// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds the tokenizer of a model, and checks that it matches the model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tessera/text/chat.hpp>
#include <tessera/text/tokenizer.hpp>

namespace fsdp::train {

/// Returns the path of --tokenizer's tokenizer.json, or else of the one in the model's folder. Returns nothing if
/// neither exists. Throws InputError if the folder of --tokenizer does not contain one.
std::optional<std::filesystem::path> tokenizer_of(const std::string& tokenizer, const std::string& model_folder);

/// Throws InputError if a tokenizer has ids outside the model's vocabulary. `file`: its path, for the error.
void require_vocabulary(const text::Tokenizer& tokenizer, const std::filesystem::path& file, std::int64_t vocabulary);

/// Returns the ids of the vocabulary that are never sampled because they have no token and would print nothing.
/// `stops`: ids that end a text; they may be sampled.
std::vector<std::int32_t> never_drawn(const text::Tokenizer& tokenizer, std::int64_t vocabulary,
                                      std::span<const std::int32_t> stops);

/// Prints a tokenizer's warnings on stderr, each once in a process.
void warn_of(const text::Tokenizer& tokenizer);
/// Prints the warnings of a chat format and of its tokenizer.
void warn_of(const text::ChatFormat& format);

}  // namespace fsdp::train

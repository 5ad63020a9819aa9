// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tokenizer of a model: where it is, and whether it is the model's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <tessera/trainer/text/chat.hpp>
#include <tessera/trainer/text/tokenizer.hpp>

namespace fsdp::train {

/// Finds the tokenizer.json that --tokenizer names, or else the one in a model's folder. Returns nothing if neither is
/// there. Throws InputError if the folder that --tokenizer names has none.
std::optional<std::filesystem::path> tokenizer_of(const std::string& tokenizer, const std::string& model_folder);

/// Throws InputError if a tokenizer has ids outside the model's vocabulary. `file`: its path, for the error.
void require_vocabulary(const text::Tokenizer& tokenizer, const std::filesystem::path& file, std::int64_t vocabulary);

/// Prints the warnings of a chat format on stderr.
void warn_of(const text::ChatFormat& format);

}  // namespace fsdp::train

// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a model's folder gives for generating text: its tokenizer, and the defaults of its generation_config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tessera/text/chat.hpp>
#include <tessera/text/tokenizer.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// Returns the path of --tokenizer's tokenizer.json, or else of the one in the model's folder. Returns nothing if
/// neither exists. Throws InputError if the folder of --tokenizer does not contain one.
std::optional<std::filesystem::path> tokenizer_of(const std::string& tokenizer, const std::string& model_folder);

/// Throws InputError if a tokenizer has ids outside the model's vocabulary. `file`: its path, for the error.
void require_vocabulary(const text::Tokenizer& tokenizer, const std::filesystem::path& file, std::int64_t vocabulary);

/// Returns the ids of the vocabulary that are never sampled because they have no token and would print nothing.
/// `stops`: ids that end a text; they may be sampled.
std::vector<std::int32_t> unsampled_ids(const text::Tokenizer& tokenizer, std::int64_t vocabulary,
                                        std::span<const std::int32_t> stops);

void warn_of(const text::Tokenizer& tokenizer);  ///< prints a tokenizer's warnings on stderr, each once in a process
void warn_of(const text::ChatFormat& format);    ///< prints the warnings of a chat format and of its tokenizer

/// Reads generation_config.json in the folder `options.model`, if the file exists, and sets the options that the user
/// did not give: temperature, top_k, top_p, min_p, repetition_penalty, and the stop ids from eos_token_id. "do_sample":
/// false sets temperature 0. Ignores other keys and null values. Returns the options that it set, such as "temperature
/// 0.6, stop-ids 2"; empty if it set none. `flags`: the flags that are bound to the options; they check the values.
/// Throws an InputError that identifies the file.
std::string apply_generation_config(const FlagSet& flags, GenerateOptions& options);

}  // namespace fsdp::train

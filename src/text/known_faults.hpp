// SPDX-License-Identifier: Apache-2.0
/// @file
/// Faults of published tokenizers that their files do not show. To add one: its check in known_faults.cpp.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "stages/pre_tokenizer.hpp"

namespace fsdp::text {

/// Returns a sentence if a tokenizer is a mistral's and splits text by the expression that exports of `transformers`
/// before version 5 have in error. `file`: its tokenizer.json; config.json next to it has family and version.
std::optional<std::string> mistral_fault(const std::filesystem::path& file, const PreTokenizer& pre_tokenizer,
                                         std::int64_t vocabulary);

}  // namespace fsdp::text

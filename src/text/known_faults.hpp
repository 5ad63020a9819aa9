// SPDX-License-Identifier: Apache-2.0
/// @file
/// Faults of published tokenizers that are not visible in their files. To add one, add its check to known_faults.cpp.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "stages/pre_tokenizer.hpp"

namespace fsdp::text {

/// Returns a warning if a tokenizer belongs to a Mistral model and splits text by the wrong expression that
/// `transformers` exported before version 5. `file`: its tokenizer.json; the config.json next to it specifies family
/// and version.
std::optional<std::string> mistral_fault(const std::filesystem::path& file, const PreTokenizer& pre_tokenizer,
                                         std::int64_t vocabulary);

}  // namespace fsdp::text

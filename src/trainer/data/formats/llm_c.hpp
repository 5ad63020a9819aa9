// SPDX-License-Identifier: Apache-2.0
/// @file
/// The header of llm.c's token files (its dev/data/data_common.py): 256 int32, of which the first three are used.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

namespace fsdp::data {

/// A kind of token file: magic number, version and width of tokens. The first is for GPT-2's tokenizer, the second for
/// Llama 3's.
struct LlmC {
  std::int32_t magic = 0;
  std::int32_t version = 0;
  int token_bytes = 0;
};
inline constexpr std::array llm_c_kinds = {LlmC{20240520, 1, 2}, LlmC{20240801, 7, 4}};
inline constexpr std::int64_t llm_c_header_bytes = 256 * 4;
inline constexpr std::int64_t llm_c_most_tokens = 0x7FFFFFFF;  ///< per file: the header counts in int32

inline std::string llm_c_header(int token_bytes, std::int64_t tokens) {
  std::string header(llm_c_header_bytes, '\0');
  for (const LlmC& kind : llm_c_kinds) {
    if (kind.token_bytes != token_bytes) continue;
    const std::array<std::int32_t, 3> words = {kind.magic, kind.version, static_cast<std::int32_t>(tokens)};
    std::memcpy(header.data(), words.data(), sizeof words);
  }
  return header;
}

}  // namespace fsdp::data

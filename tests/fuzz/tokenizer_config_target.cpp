// SPDX-License-Identifier: Apache-2.0
// A tokenizer_config.json, with special tokens and a chat template.
#include <tessera/text/tokenizer_config.hpp>

#include "target.hpp"

FUZZ_TARGET(tokenizer_config) {
  const std::filesystem::path path = fsdp::fuzz::written("tokenizer/tokenizer_config.json", input);
  fsdp::fuzz::refused_or_read([&] { fsdp::text::special_tokens_beside(path); });
  fsdp::fuzz::refused_or_read([&] { fsdp::text::chat_template_beside(path); });
}

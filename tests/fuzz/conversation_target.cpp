// SPDX-License-Identifier: Apache-2.0
// A line of JSONL with a conversation, under templates with and without marked answers.
#include <tessera/text/chat.hpp>

#include "target.hpp"

FUZZ_TARGET(conversation) {
  using fsdp::text::ChatFormat;
  static const std::filesystem::path tokenizer = std::filesystem::path(TESSERA_TEST_DATA) / "text/tokenizers/qwen.json";
  static const ChatFormat formats[] = {{tokenizer, "chatml", fsdp::text::training_clock()},
                                       {tokenizer, "llama3", fsdp::text::training_clock()},
                                       {tokenizer, "qwen3", fsdp::text::training_clock()},
                                       {tokenizer, "plain", fsdp::text::training_clock()}};
  for (const ChatFormat& format : formats) fsdp::fuzz::refused_or_read([&] { format.encode(input, "line 1"); });
}

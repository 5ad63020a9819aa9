// SPDX-License-Identifier: Apache-2.0
// A JSONL file in which each line is a document.
#include <tessera/trainer/data/tokenize.hpp>

#include "target.hpp"

FUZZ_TARGET(text_line) {
  const std::filesystem::path path = fsdp::fuzz::written("texts.jsonl", input);
  static int count = 0;
  const std::filesystem::path out = path.parent_path() / ("out" + std::to_string(++count));
  fsdp::fuzz::refused_or_read([&] {
    fsdp::data::Tokenizing({.inputs = {path},
                            .tokenizer = std::filesystem::path(TESSERA_TEST_DATA) / "text/tokenizers/qwen.json",
                            .end_token = "none",
                            .threads = 1})
        .write(out);
  });
  std::filesystem::remove_all(out);
}

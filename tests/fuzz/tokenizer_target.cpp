// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json, and a text that it encodes and decodes.
#include <tessera/text/tokenizer.hpp>

#include "target.hpp"

FUZZ_TARGET(tokenizer) {
  const auto parts = fsdp::fuzz::parts_of(input);
  const std::string_view json = parts.first, text = parts.second;
  fsdp::fuzz::refused_or_read([&] {
    const fsdp::text::Tokenizer tokenizer = fsdp::text::Tokenizer::parse(json, "tokenizer.json");
    const auto ids = tokenizer.encode(text);
    tokenizer.decode(ids);
    fsdp::text::StreamDecoder stream(tokenizer);
    for (std::size_t i = 0; i < ids.size() && i < 100; ++i) stream.push(ids[i]);
    stream.finish();
    tokenizer.frame();
  });
}

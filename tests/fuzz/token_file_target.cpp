// SPDX-License-Identifier: Apache-2.0
// A file of tokens or text, with or without llm.c's header.
#include <array>

#include <tessera/trainer/data/corpus.hpp>

#include "target.hpp"

FUZZ_TARGET(token_file) {
  const std::filesystem::path path = fsdp::fuzz::written("tokens.bin", input);
  for (const auto format : {fsdp::data::TokenFormat::automatic, fsdp::data::TokenFormat::u16})
    fsdp::fuzz::refused_or_read([&] {
      const fsdp::data::Corpus corpus(std::span(&path, 1), format);
      std::array<std::uint32_t, 16> tokens{};
      const auto count = std::min<std::int64_t>(corpus.size(), tokens.size());
      corpus.copy(corpus.size() - count, std::span(tokens).first(static_cast<std::size_t>(count)));
    });
}

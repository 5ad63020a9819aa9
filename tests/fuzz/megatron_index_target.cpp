// SPDX-License-Identifier: Apache-2.0
// A Megatron index; the last byte of the input determines the token size.
#include <array>

#include <tessera/trainer/data/corpus.hpp>

#include "target.hpp"

FUZZ_TARGET(megatron_index) {
  if (input.empty()) return;
  fsdp::fuzz::written("data.bin", std::string(static_cast<unsigned char>(input.back()), '\1'));
  const std::filesystem::path path = fsdp::fuzz::written("data.idx", input.substr(0, input.size() - 1));
  fsdp::fuzz::refused_or_read([&] {
    const fsdp::data::Corpus corpus(std::span(&path, 1));
    std::array<std::uint32_t, 16> tokens{};
    const auto count = std::min<std::int64_t>(corpus.size(), tokens.size());
    corpus.copy(corpus.size() - count, std::span(tokens).first(static_cast<std::size_t>(count)));
  });
}

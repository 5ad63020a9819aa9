// SPDX-License-Identifier: Apache-2.0
/// @file
/// A source whose tokens identify their sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <tessera/fsdp/nn/token_batch.hpp>
#include <tessera/trainer/data/source.hpp>

namespace fsdp::test {

/// The tokens of each of the `windows` samples are computed from its index; all samples are for training. The first n %
/// length targets of sample n are ignored.
struct NumberedSource {
  using Batch = TokenBatch;
  struct Storage {
    std::int64_t sequences = 0;
    std::shared_ptr<std::byte> memory = {};
  };

  std::int64_t windows = 100;
  std::int64_t length = 6;
  std::int64_t vocabulary = 200;

  std::int64_t training() const { return windows; }
  std::int64_t validation() const { return 0; }
  std::int64_t sequence_length() const { return length; }
  std::string text() const { return "numbers"; }

  Storage storage(std::int64_t sequences, data::Allocate allocate) const {
    return {sequences, allocate(2 * sequences * length * std::int64_t{sizeof(std::int32_t)})};
  }
  Batch fill(Storage& storage, std::span<const std::int64_t> samples) const {
    const std::int64_t rows = storage.sequences * length;
    auto* const tokens = reinterpret_cast<std::int32_t*>(storage.memory.get());
    std::int32_t* const targets = tokens + rows;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t sequence = row / length, at = row % length;
      const bool missing = sequence >= std::ssize(samples);
      const std::int64_t sample = missing ? 0 : samples[static_cast<std::size_t>(sequence)];
      tokens[row] = static_cast<std::int32_t>((sample + at * at * (sample % 7)) % vocabulary);
      targets[row] = missing || at < sample % length ? -1 : static_cast<std::int32_t>((sample * 3 + at) % vocabulary);
    }
    return {.tokens = {tokens, {rows}}, .targets = {targets, {rows}}, .sequences = storage.sequences};
  }
};
static_assert(data::check_source<NumberedSource>());

}  // namespace fsdp::test

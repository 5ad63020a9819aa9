// SPDX-License-Identifier: Apache-2.0
/// @file
/// Windows of text or of token files as the micro-batches of a language model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fsdp/data/corpus.hpp>
#include <fsdp/data/source.hpp>
#include <fsdp/data/windows.hpp>
#include <fsdp/nn/token_batch.hpp>

namespace fsdp::data {

/// A Source: sample i is window i of the corpus.
class TextSource {
 public:
  using Batch = TokenBatch;

  /// Tokens and targets of one micro-batch.
  struct Storage {
    std::int64_t sequences = 0;
    std::shared_ptr<std::byte> memory = {};
    std::int32_t *tokens = nullptr, *targets = nullptr;  // [sequences, S]
    std::vector<std::int64_t> documents = {};            // [documents + 1]
  };

  /// `separator`: a token that ends a document; without one every window is a document. Otherwise as Windows and
  /// Corpus.
  TextSource(std::span<const std::filesystem::path> paths, std::int64_t sequence_length, double validation_fraction,
             std::int64_t vocabulary, std::optional<std::int64_t> separator,
             TokenFormat format = TokenFormat::automatic);

  std::int64_t training() const { return windows_.training(); }
  std::int64_t validation() const { return windows_.validation(); }
  std::int64_t sequence_length() const { return windows_.seq_len(); }
  Storage storage(std::int64_t sequences, Allocate allocate) const;
  Batch fill(Storage& storage, std::span<const std::int64_t> windows) const;
  std::string text() const;
  /// Files, tokens and a digest of their contents, whatever they are called. Reads them. Throws InputError.
  std::string identity() const;
  std::int64_t skipped_binary() const { return corpus_->skipped_binary(); }  ///< files

 private:
  std::unique_ptr<const Corpus> corpus_;  // where windows_ finds it
  Windows windows_;
  std::optional<std::int64_t> separator_;
};

}  // namespace fsdp::data

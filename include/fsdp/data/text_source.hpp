// SPDX-License-Identifier: Apache-2.0
/// @file
/// Windows of text, of token files or of conversations as the micro-batches of a language model; several sources by
/// their weights.
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
#include <fsdp/data/packed_conversations.hpp>
#include <fsdp/data/sampler.hpp>
#include <fsdp/data/source.hpp>
#include <fsdp/data/windows.hpp>
#include <fsdp/nn/token_batch.hpp>

namespace fsdp::data {

/// Files that are read as one sequence of tokens, and their share of the windows.
struct WeightedFiles {
  std::vector<std::filesystem::path> paths = {};
  double weight = 1;
};

/// A Source. Of one corpus sample i is window i; of several, the windows that are trained on stand one corpus behind
/// another, and then those that are held out.
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
  /// Several corpora, each with windows and a held-out part of its own; formats may differ.
  TextSource(std::span<const WeightedFiles> sources, std::int64_t sequence_length, double validation_fraction,
             std::int64_t vocabulary, std::optional<std::int64_t> separator,
             TokenFormat format = TokenFormat::automatic);

  /// Of conversations every one is a document.
  explicit TextSource(PackedConversations conversations);
  TextSource(TextSource&&) noexcept;
  ~TextSource();

  std::int64_t training() const { return training_; }
  std::int64_t validation() const { return validation_; }
  std::int64_t sequence_length() const { return sequence_length_; }
  /// The order in which several corpora are drawn from by their weights (data/sampler.hpp); of one corpus none.
  Order order(std::uint64_t seed) const;
  Storage storage(std::int64_t sequences, Allocate allocate) const;
  Batch fill(Storage& storage, std::span<const std::int64_t> windows) const;
  std::string text() const;
  /// Files, tokens and a digest of their contents, whatever they are called. Reads them. Throws InputError.
  std::string identity() const;
  std::int64_t skipped_binary() const;  ///< files

 private:
  struct Part {
    std::unique_ptr<const Corpus> corpus;  // where windows finds it
    Windows windows;
    double weight = 1;
    std::int64_t training = 0, validation = 0;  // its first samples
  };

  const Part& part_of(std::int64_t sample, std::int64_t& window) const;
  void fill_window(std::int64_t sample, std::int32_t* tokens, std::int32_t* targets,
                   std::vector<std::int64_t>& documents) const;

  std::vector<Part> parts_;  // or
  std::optional<PackedConversations> conversations_;
  std::int64_t sequence_length_ = 0;
  std::int64_t training_ = 0, validation_ = 0;
  std::optional<std::int64_t> separator_;
};

}  // namespace fsdp::data

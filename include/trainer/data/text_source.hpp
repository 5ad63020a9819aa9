// SPDX-License-Identifier: Apache-2.0
/// @file
/// The data source of a language model: windows of text, token files or conversations, also mixed by weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/nn/token_batch.hpp>
#include <tessera/trainer/data/corpus.hpp>
#include <tessera/trainer/data/sampler.hpp>
#include <tessera/trainer/data/source.hpp>
#include <tessera/trainer/data/windows.hpp>

namespace fsdp::data {

/// Files that are read as one corpus, and the weight of that corpus.
struct WeightedFiles {
  std::vector<std::filesystem::path> paths = {};
  double weight = 1;  ///< weight relative to the weights of the other corpora
};

/// A Source of token batches. With one corpus, sample i is window i. With several, samples are the training windows of
/// all corpora, one corpus after the other, then the held-out windows of all corpora.
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

  /// One corpus. `separator`: separates documents; if empty, every window is a document. Throws InputError for a
  /// separator that does not occur in the data. Other parameters and errors: see Windows and Corpus.
  TextSource(std::span<const std::filesystem::path> paths, std::int64_t sequence_length, double validation_fraction,
             std::int64_t vocabulary, std::optional<DocumentSeparator> separator,
             TokenFormat format = TokenFormat::automatic);
  /// Several corpora, each with its own windows and held-out part. Their token layouts may differ.
  TextSource(std::span<const WeightedFiles> sources, std::int64_t sequence_length, double validation_fraction,
             std::int64_t vocabulary, std::optional<DocumentSeparator> separator,
             TokenFormat format = TokenFormat::automatic);

  explicit TextSource(PackedConversations conversations);  ///< conversations; each is a document

  std::int64_t training() const { return training_; }
  std::int64_t validation() const { return validation_; }
  std::int64_t sequence_length() const { return sequence_length_; }
  /// Returns the order that samples several corpora by their weights (sampler.hpp); empty for a single corpus.
  Order order(std::uint64_t seed) const;
  Storage storage(std::int64_t sequences, Allocate allocate) const;
  Batch fill(Storage& storage, std::span<const std::int64_t> windows) const;
  std::string text() const;
  /// Returns the numbers of files and tokens and a digest of the contents, independent of file names: of files above 64
  /// MiB a digest of some blocks (digest_of_file in tessera/fsdp/core/identity.hpp). Throws InputError.
  std::string identity() const;
  std::int64_t skipped_binary() const;  ///< number of files that are not text
  /// The part of text() about data that were omitted, replaced or not separated; may be empty.
  std::string losses() const;

 private:
  struct Part {
    std::unique_ptr<const Corpus> corpus;  // `windows` refers to it
    Windows windows;
    double weight = 1;
    std::int64_t training = 0, validation = 0;  // index of the first sample of each kind
    std::vector<std::int64_t> borders = {};     // token indices at which documents begin, if the index lists them
    std::string note = {};                      // message about documents that are not separated
    std::string losses() const;
  };

  void separate(Part& part) const;
  void fill_window(std::int64_t sample, std::int32_t* tokens, std::int32_t* targets,
                   std::vector<std::int64_t>& documents) const;

  std::vector<Part> parts_;  // empty for conversations
  std::optional<PackedConversations> conversations_;
  std::int64_t sequence_length_ = 0;
  std::int64_t training_ = 0, validation_ = 0;
  std::optional<DocumentSeparator> separator_;
};

}  // namespace fsdp::data

// SPDX-License-Identifier: Apache-2.0
#include <fsdp/data/text_source.hpp>

#include <algorithm>

#include <fsdp/core/error.hpp>
#include <fsdp/core/hash.hpp>
#include <fsdp/core/identity.hpp>
#include <fsdp/report/report.hpp>

namespace fsdp::data {

TextSource::TextSource(std::span<const std::filesystem::path> paths, std::int64_t sequence_length,
                       double validation_fraction, std::int64_t vocabulary, std::optional<std::int64_t> separator)
    : corpus_(std::make_unique<const Corpus>(paths)),
      windows_(*corpus_, sequence_length, validation_fraction, vocabulary),
      separator_(separator) {}

TextSource::Storage TextSource::storage(std::int64_t sequences, Allocate allocate) const {
  const std::int64_t tokens = sequences * windows_.seq_len();
  Storage storage{.sequences = sequences, .memory = allocate(2 * tokens * std::int64_t{sizeof(std::int32_t)})};
  storage.tokens = reinterpret_cast<std::int32_t*>(storage.memory.get());
  storage.targets = storage.tokens + tokens;
  return storage;
}

TokenBatch TextSource::fill(Storage& storage, std::span<const std::int64_t> windows) const {
  const std::int64_t length = windows_.seq_len();
  storage.documents.assign(1, 0);
  for (std::int64_t i = 0; i < storage.sequences; ++i) {
    const bool present = i < std::ssize(windows);
    std::int32_t* const tokens = storage.tokens + i * length;
    std::int32_t* const targets = storage.targets + i * length;
    windows_.fill(present ? windows[static_cast<std::size_t>(i)] : 0, tokens, targets);
    if (!present) std::fill_n(targets, length, -1);
    if (separator_)
      append_documents({tokens, static_cast<std::size_t>(length)}, static_cast<std::int32_t>(*separator_),
                       storage.documents);
  }
  const Shape shape{storage.sequences * length};
  Batch batch{.tokens = {storage.tokens, shape}, .targets = {storage.targets, shape}, .sequences = storage.sequences};
  if (separator_) batch.documents = storage.documents;
  return batch;
}

std::string TextSource::text() const {
  return message(report::bytes_text(corpus_->size()), " in ", corpus_->files().size(), " files (",
                 corpus_->skipped_binary(), " binary ones skipped)");
}

std::string TextSource::identity() const {
  std::uint64_t digest = hash_seed;
  for (const CorpusFile& file : corpus_->files())
    digest = hashed(digest, static_cast<std::int64_t>(digest_of_file(file.path)));
  return message(corpus_->files().size(), " files, ", corpus_->size(), " bytes, digest ", digest_text(digest));
}

}  // namespace fsdp::data

// SPDX-License-Identifier: Apache-2.0
#include <fsdp/data/text_source.hpp>

#include <algorithm>

#include <fsdp/core/error.hpp>
#include <fsdp/core/hash.hpp>
#include <fsdp/core/identity.hpp>
#include <fsdp/report/report.hpp>

namespace fsdp::data {

TextSource::TextSource(std::span<const std::filesystem::path> paths, std::int64_t sequence_length,
                       double validation_fraction, std::int64_t vocabulary, std::optional<std::int64_t> separator,
                       TokenFormat format)
    : corpus_(std::make_unique<const Corpus>(paths, format)),
      windows_(*corpus_, sequence_length, validation_fraction, vocabulary),
      separator_(separator) {
  if (!separator) return;
  require<InputError>(corpus_->layout().token_bytes > 1 || *separator < 256, "--document-separator ", *separator,
                      " must be a byte: 0 to 255, since the data are text");
  require<InputError>(corpus_->layout().token_bytes == 1 || *separator < vocabulary, "--document-separator ",
                      *separator, " is not below the model's vocabulary of ", vocabulary);
}

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
  const TokenLayout& layout = corpus_->layout();
  const std::size_t files = corpus_->files().size();
  const std::string where = message(" in ", files, files == 1 ? " file" : " files");
  if (layout.token_bytes > 1) return message(corpus_->size(), " ", layout.unit(), where);
  return message(report::bytes_text(corpus_->size()), where, " (", corpus_->skipped_binary(), " binary ones skipped)");
}

std::string TextSource::identity() const {
  std::uint64_t digest = hash_seed;
  for (const CorpusFile& file : corpus_->files())
    digest = hashed(digest, static_cast<std::int64_t>(digest_of_file(file.path)));
  return message(corpus_->files().size(), " files, ", corpus_->size(), " ", corpus_->layout().unit(), ", digest ",
                 digest_text(digest));
}

}  // namespace fsdp::data

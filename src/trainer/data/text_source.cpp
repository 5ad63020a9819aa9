// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/text_source.hpp>

#include <algorithm>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/core/identity.hpp>
#include <tessera/trainer/report/report.hpp>

namespace fsdp::data {

TextSource::TextSource(std::span<const std::filesystem::path> paths, std::int64_t sequence_length,
                       double validation_fraction, std::int64_t vocabulary, std::optional<DocumentSeparator> separator,
                       TokenFormat format)
    : TextSource(std::vector{WeightedFiles{.paths = {paths.begin(), paths.end()}}}, sequence_length,
                 validation_fraction, vocabulary, separator, format) {}

TextSource::TextSource(std::span<const WeightedFiles> sources, std::int64_t sequence_length, double validation_fraction,
                       std::int64_t vocabulary, std::optional<DocumentSeparator> separator, TokenFormat format)
    : sequence_length_(sequence_length), separator_(separator) {
  require(!sources.empty(), "data: a source of no files");
  for (const WeightedFiles& source : sources) {
    auto corpus = std::make_unique<const Corpus>(source.paths, format);
    const bool text = corpus->layout().text;
    const bool token = separator && !separator->index;
    const std::int64_t id = token ? separator->token : 0;
    require<InputError>(!token || !text || id < 256, "--document-separator ", id,
                        " must be a byte: 0 to 255, since the data are text");
    require<InputError>(!token || text || id < vocabulary, "--document-separator ", id,
                        " is not below the model's vocabulary of ", vocabulary);
    const Windows windows(*corpus, sequence_length, validation_fraction, vocabulary);
    if (!text) {  // reads a few windows: tokens of another type or byte order are often not below the vocabulary
      constexpr std::int64_t looked_at = 16;
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(sequence_length)), targets = tokens;
      for (const std::int64_t window : evenly_spread(0, windows.count(), looked_at))
        windows.fill(window, tokens.data(), targets.data());
    }
    parts_.push_back({.corpus = std::move(corpus), .windows = windows, .weight = source.weight, .training = training_});
    training_ += windows.training();
    separate(parts_.back());
  }
  const auto apart = [](const Part& part) { return part.note.empty(); };
  require<InputError>(!separator || std::ranges::any_of(parts_, apart), "--document-separator ",
                      separator ? to_text(*separator) : "", ": ", parts_.front().note,
                      "; name the token that ends a document, or leave it out");
  for (Part& part : parts_) {
    part.validation = training_ + validation_;
    validation_ += part.windows.validation();
  }
}

/// Reads the document borders of a part, or adds a note that its documents are not separated.
void TextSource::separate(Part& part) const {
  const Corpus& corpus = *part.corpus;
  const std::string listed = message("the index lists ", corpus.indexed_documents(), " documents");
  if (separator_ && separator_->index)
    part.borders = corpus.document_borders();
  else if (separator_ && !corpus.holds(static_cast<std::uint32_t>(separator_->token)))
    part.note = message("no ", corpus.layout().text ? "byte " : "token ", separator_->token, " among ", corpus.size(),
                        ", so that documents would not be kept apart",
                        corpus.indexed_documents() > 0 ? message(" (", listed, ": --document-separator index)") : "");
  else if (!separator_ && corpus.indexed_documents() > 1)
    part.note = listed + ", whose borders attention crosses (--document-separator index keeps them apart)";
}

std::string TextSource::Part::losses() const {
  const std::string losses = corpus->losses();
  return losses + (losses.empty() || note.empty() ? "" : ", ") + note;
}

TextSource::TextSource(PackedConversations conversations)
    : conversations_(std::move(conversations)),
      sequence_length_(conversations_->sequence_length()),
      training_(conversations_->training()),
      validation_(conversations_->validation()) {}

Order TextSource::order(std::uint64_t seed) const {
  if (parts_.size() < 2) return {};
  std::vector<Mixture::Source> sources;
  std::vector<std::int64_t> first;
  for (const Part& part : parts_) {
    sources.push_back({.weight = part.weight, .windows = part.windows.training()});
    first.push_back(part.training);
  }
  return [mixture = Mixture(seed, std::move(sources)), first = std::move(first)](std::int64_t n) {
    const Mixture::Window drawn = mixture(n);
    return first[drawn.source] + drawn.window;
  };
}

std::int64_t TextSource::skipped_binary() const {
  std::int64_t files = 0;
  for (const Part& part : parts_) files += part.corpus->skipped_binary();
  return files;
}

std::string TextSource::losses() const {
  std::string text;
  for (const Part& part : parts_) {
    const std::string losses = part.losses();
    if (!losses.empty()) text += (text.empty() ? "" : "; ") + losses;
  }
  return text;
}

TextSource::Storage TextSource::storage(std::int64_t sequences, Allocate allocate) const {
  const std::int64_t tokens = sequences * sequence_length();
  Storage storage{.sequences = sequences, .memory = allocate(2 * tokens * std::int64_t{sizeof(std::int32_t)})};
  storage.tokens = reinterpret_cast<std::int32_t*>(storage.memory.get());
  storage.targets = storage.tokens + tokens;
  return storage;
}

void TextSource::fill_window(std::int64_t sample, std::int32_t* tokens, std::int32_t* targets,
                             std::vector<std::int64_t>& documents) const {
  if (conversations_) return conversations_->fill(sample, tokens, targets, documents);
  const bool held_out = sample >= training_;
  const auto first = held_out ? &Part::validation : &Part::training;
  const Part& part = *(std::ranges::upper_bound(parts_, sample, {}, first) - 1);
  const std::int64_t window = sample - part.*first + (held_out ? part.windows.training() : 0);
  part.windows.fill(window, tokens, targets);
  if (separator_ && separator_->index)
    append_documents(part.borders, window * sequence_length_, sequence_length_, documents);
  else if (separator_)
    append_documents({tokens, static_cast<std::size_t>(sequence_length_)}, static_cast<std::int32_t>(separator_->token),
                     documents);
}

TokenBatch TextSource::fill(Storage& storage, std::span<const std::int64_t> windows) const {
  storage.documents.assign(1, 0);
  for (std::int64_t i = 0; i < storage.sequences; ++i) {
    const bool present = i < std::ssize(windows);
    std::int32_t* const targets = storage.targets + i * sequence_length_;
    fill_window(present ? windows[static_cast<std::size_t>(i)] : 0, storage.tokens + i * sequence_length_, targets,
                storage.documents);
    if (!present) std::fill_n(targets, sequence_length_, -1);
  }
  const Shape shape{storage.sequences * sequence_length_};
  Batch batch{.tokens = {storage.tokens, shape}, .targets = {storage.targets, shape}, .sequences = storage.sequences};
  if (storage.documents.size() > 1) batch.documents = storage.documents;
  return batch;
}

std::string TextSource::text() const {
  if (conversations_) return conversations_->text();
  std::string text;
  for (const Part& part : parts_) {
    const Corpus& corpus = *part.corpus;
    const std::size_t files = corpus.files().size();
    if (parts_.size() > 1) text += message(text.empty() ? "" : "; ", "weight ", part.weight, ": ");
    const std::string unit = corpus.layout().unit();
    text += corpus.layout().text ? report::bytes_text(corpus.size()) : message(corpus.size(), " ", unit);
    text += message(" in ", files, files == 1 ? " file" : " files");
    const std::string losses = part.losses();
    if (!losses.empty()) text += ", " + losses;
  }
  return text;
}

std::string TextSource::identity() const {
  if (conversations_) return conversations_->identity();
  std::string text;
  for (const Part& part : parts_) {
    std::uint64_t digest = hash_seed;
    for (const CorpusFile& file : part.corpus->files())
      digest = hashed(digest, static_cast<std::int64_t>(digest_of_file(file.path)));
    if (parts_.size() > 1) text += message(text.empty() ? "" : "; ", "weight ", part.weight, ": ");
    text += message(part.corpus->files().size(), " files, ", part.corpus->size(), " ", part.corpus->layout().unit(),
                    ", digest ", digest_text(digest));
  }
  return text;
}

}  // namespace fsdp::data
